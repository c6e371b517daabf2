"""A worker of the projection ``notes`` in a process of its own: ``python -m tests.outbox.rebuild.process HOW``.

``freeze`` stops itself (SIGSTOP) when it has read that there is no rebuild, and has not written yet. ``die:STEP`` kills
itself (SIGKILL) when its rebuild or comparison has come so far; ``work`` does neither."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from typing import Any

from redrive import App
from redrive.observe.logs import configure
from redrive.outbox import compare, operations, rebuild
from redrive.outbox.operations import Driver
from redrive.outbox.projection import Projection
from redrive.outbox.settings import OutboxSettings
from redrive.outbox.sinks.fts5 import Fts5
from redrive.outbox.sinks.postgres_text import PostgresText
from redrive.settings import load_settings

STEPS = ("fence", "scan", "swap:before", "swap:after")


def make_app(url: str, sink_url: str) -> App:
    settings = load_settings(
        url=url,
        log_format="json",
        lease_ms=int(os.environ.get("TEST_LEASE_MS", "2000")),
        heartbeat_ms=1000,
        recovery_interval_ms=200,
        max_worker_deaths=100,
    )
    own = OutboxSettings(base_backoff_seconds=0.01, max_backoff_seconds=0.05, max_attempts=100)
    app = App(settings=settings.holding(own))
    app.outbox.projection("notes", sink=sink_url)
    return app


def freeze_before_writing(url: str) -> None:
    original = Projection.indexes

    async def indexes(self: Projection, store: Any) -> Any:
        found = await original(self, store)
        if url.startswith("sqlite"):  # nobody else of this process holds the file's lock at this moment
            connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60, isolation_level=None)
            connection.execute("begin immediate")
            connection.execute("rollback")
        os.kill(os.getpid(), signal.SIGSTOP)
        return found

    Projection.indexes = indexes  # type: ignore[method-assign]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(step: str) -> None:
    """Dies after a step of the same name was saved for the second time, or around the switch."""
    if step.startswith("swap"):
        for sink in (Fts5, PostgresText):
            _die_around(sink, step.partition(":")[2])
        return
    save, seen = Driver.save, list[str]()

    async def saved(self: Driver, operation: Any, **given: Any) -> None:
        await save(self, operation, **given)
        at = (operation.work.state or {}).get("step")
        if at == step:
            seen.append(at)
            if len(seen) == 2:
                die()

    Driver.save = saved  # type: ignore[method-assign]


def _die_around(owner: Any, when: str) -> None:
    original = owner.swap

    async def swap(self: Any, index: str) -> None:
        if when == "before":
            die()
        await original(self, index)
        die()

    owner.swap = swap


async def main(how: str) -> None:
    configure("json")
    url = os.environ["TEST_STORE"]
    app = make_app(url, os.environ["TEST_SINK"])
    if how == "freeze":
        freeze_before_writing(url)
    elif how.startswith("die:"):
        operations.DRIVER_GONE_AFTER_S = 0.5
        rebuild.PAGE = 3
        compare.PAGE = 3
        die_at(how.removeprefix("die:"))
    await app.worker(queues="outbox:notes").run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
