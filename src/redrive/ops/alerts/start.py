"""The command that starts a worker for a queue, as this application is configured."""

from __future__ import annotations

import shlex

from redrive.settings import Settings


def start_command(settings: Settings, connection: str, queue: str, app: str = "module:app") -> str:
    """Returns ``redrive work`` with the group that serves the queue, else with the queue itself."""
    for name, group in settings.workers.items():
        there = (group.connection or settings.default_connection) == connection
        if there and queue in group.given.get("queues", ()):
            return f"redrive work --app {app} --group {name}"
    return f"redrive work --app {app} --queue {shlex.quote(queue)}"
