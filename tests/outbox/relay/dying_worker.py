"""A worker of the outbox that kills itself where it is told to: ``python -m tests.outbox.relay.dying_worker POINT``;
without one it works.

A point is a step and when: the request to the sink ``before`` and ``after`` it is written, its second part, and the
settlement of the events ``before`` and ``after`` it has landed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from redrive import App
from redrive.kernel.commit import Commit
from redrive.observe.logs import configure
from redrive.outbox import sink_writer
from redrive.outbox.settings import OutboxSettings
from redrive.outbox.sinks.fts5 import Fts5Indexes
from redrive.settings import load_settings
from redrive.stores.postgres.store import PostgresStore
from redrive.stores.sqlite.store import SqliteStore
from tests.outbox.forgetful import ForgetfulFts5

POINTS = ("write:before", "write:during", "write:after", "second:after", "bury:after", "settle:before", "settle:after")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(point: str) -> None:
    name, when = point.split(":")
    if point == "write:during":  # inside the sink's own transaction
        original = Fts5Indexes.make

        def made(self: Any, db: Any, index: str) -> None:
            original(self, db, index)
            db.set_trace_callback(lambda text: die() if "_docs (key" in text else None)

        Fts5Indexes.make = made  # type: ignore[method-assign]
    elif name == "settle":
        for store in (SqliteStore, PostgresStore):
            _around(store, "cycle", when, lambda _store, commit, *_: _settles(commit))
    elif name == "bury":
        _around(sink_writer, "bury", when, lambda _store, _name, events: any(one.op == "delete" for one in events))
    else:
        calls: list[int] = []
        wanted = 2 if name == "second" else 1
        _around(ForgetfulFts5, "write", when, lambda *_: calls.append(1) or len(calls) == wanted)


def _around(owner: Any, name: str, when: str, deadly: Callable[..., Any]) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    async def around(*given: Any, **options: Any) -> Any:
        meant = deadly(*given)
        if meant and when == "before":
            die()
        answer = await original(*given, **options)
        if meant:
            die()
        return answer

    setattr(owner, name, around)


def _settles(commit: Commit) -> bool:
    return bool(commit.transitions)


def make_app() -> App:
    settings = load_settings(
        log_format="json",
        lease_ms=2000,
        heartbeat_ms=1000,
        recovery_interval_ms=200,
        max_worker_deaths=100,  # no event is to be taken for what so many workers die of here
    )
    own = OutboxSettings(base_backoff_seconds=0.01, max_backoff_seconds=0.05, max_attempts=100, batch=40)
    app = App(settings=settings.holding(own))
    app.outbox.projection("notes", sink=ForgetfulFts5(os.environ["TEST_SEARCH"]))
    return app


async def main() -> None:
    configure("json")
    app = make_app()
    await app.worker(queues="outbox:notes").run()


if __name__ == "__main__":
    if sys.argv[1:]:
        die_at(sys.argv[1])
    asyncio.run(main())
