"""Does what ``redrive work`` and ``redrive up`` share: what a worker warns of, its start and its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from redrive.app import App
from redrive.cli.support.loading import Loaded
from redrive.errors import ConfigError
from redrive.kernel.task import WAITING
from redrive.ops.access import Caller, Role
from redrive.settings import database_url_note, misspelt
from redrive.worker.memory import freeze_what_is_loaded
from redrive.worker.worker import Worker

logger = logging.getLogger("redrive.cli")
LOOKING_CALLER = Caller("redrive work", Role.VIEWER)


def warn_of_unknown_settings(app: App) -> None:
    routing, kinds = app.registry.routing, [*app.registry.handlers, *app.registry.declared]
    unused = [] if routing is None else routing.unused(kinds)
    for text in (*misspelt(app.features), *(f"the route {one!r} fits no kind of this application" for one in unused)):
        logger.warning("%s", text, extra={"event": "settings.unknown"})
    if note := database_url_note(app.settings, app.url):
        logger.info("%s", note, extra={"event": "settings.database_url"})


def say_connection(app: App, name: str | None) -> None:
    """Says which of several connections is served."""
    if len(app.connections) > 1:
        served, others = app.at(name).name, [one for one in app.connections if one != app.at(name).name]
        note = "" if name else ", the default one"
        logger.info(
            "serving the connection %s%s; not here: %s",
            served,
            note,
            ", ".join(others),
            extra={"event": "worker.connection", "connection": served},
        )


async def warn_of_unknown_queues(app: App, queues: Sequence[str], connection: str | None = None) -> None:
    """A worker may come before the first task of its queue; a misspelt name looks the same, so it is said."""
    own = sorted(app.registry.queues())
    if all(name in own for name in queues):
        return
    operator = await app.operator(LOOKING_CALLER, connection)
    known = {queue.name for queue in (await operator.control.traffic()).queues}
    for name in queues:
        if name not in known:
            logger.warning(
                "no queue is named %s so far; known queues: %s",
                name,
                ", ".join(sorted(known)),
                extra={"event": "queue.unknown"},
            )


async def leave_unknown_kinds(loaded: Loaded, queues: Sequence[str], connection: str | None = None) -> None:
    """Makes a worker without an application leave unknown kinds alone; refused where it could only harm."""
    if loaded.module is not None:
        return
    operator = await loaded.app.operator(LOOKING_CALLER, connection)
    counts = (await operator.health.stats()).counts
    kinds = {count.kind for count in counts if count.state in WAITING and count.n and count.queue in queues}
    foreign = sorted(kinds - loaded.app.registry.handlers.keys())
    if foreign:
        raise ConfigError(
            f"tasks are waiting that only an application can run: {', '.join(foreign)}",
            hint="name the application: --app module:app (or REDRIVE_APP)",
        )
    loaded.app.settings = loaded.app.settings.with_values(unknown_kind="leave")
    logger.warning(
        "no application was named (--app module:app): only what redrive brings itself runs here",
        extra={"event": "worker.no_app"},
    )


def ending(worker: Worker | None, also: Callable[[], None] = lambda: None) -> Callable[[str], None]:
    """Returns what a first signal does. ``also``: what else is to stop with the worker, or in its place."""

    def stop(why: str) -> None:
        if worker is not None:
            worker.stop(why, hint="a second signal exits at once")
        also()

    return stop


async def run_worker(worker: Worker) -> None:
    freeze_what_is_loaded()
    await worker.run()
