"""A worker of remote batches that kills itself where it is told to: ``python dying.py POINT``; without one it works.

A point is a step and when: ``before``, ``after``, and ``landed``: when the outcome of its task is in the store."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from redrive import App
from redrive.batches.remote.step_handlers import StepHandlers
from redrive.batches.settings import BatchSettings
from redrive.kernel.commit import Commit
from redrive.remote.checked import RemoteProvider
from redrive.settings import load_settings
from redrive.stores.postgres.store import PostgresStore
from redrive.stores.sqlite.store import SqliteStore
from redrive.webhooks import delivery_attempt

STORES = (SqliteStore, PostgresStore)
PLACES: dict[str, tuple[Any, str]] = {
    "dispatch": (StepHandlers, "_dispatch"),
    "start": (RemoteProvider, "start"),
    "poll": (RemoteProvider, "poll"),
    "cancel": (RemoteProvider, "cancel"),
    "release": (StepHandlers, "_release"),
    "settle": (StepHandlers, "_settle"),
    "step": (StepHandlers, "_each"),  # of any kind, also where it was taken already
    "request": (delivery_attempt, "post"),  # of a webhook
    "log": (delivery_attempt.DeliveryAttempt, "_write_down"),  # that it was sent, and what was answered
}


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(point: str) -> None:
    name, when = point.split(":")
    if name == "event":  # becomes deliveries, in one Commit
        for store in STORES:
            _around(store, "apply", when, _enqueues_deliveries)
    elif when == "landed":
        owner, method = PLACES[name]
        reached: list[bool] = []
        _call_after(owner, method, reached.append)
        for store in STORES:
            _around(store, "cycle", "after", lambda *given: bool(reached and _settles(*given)))
    else:
        _around(*PLACES[name], when)


def _around(owner: Any, name: str, when: str, deadly: Callable[..., bool] = lambda *_: True) -> None:
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


def _call_after(owner: Any, name: str, tell: Callable[[bool], None]) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    async def around(*given: Any, **options: Any) -> Any:
        answer = await original(*given, **options)
        tell(True)
        return answer

    setattr(owner, name, around)


def _enqueues_deliveries(_: Any, commit: Commit) -> bool:
    return any(task.kind == "WEBHOOK_DELIVERY" for task in commit.enqueues)


def _settles(_: Any, commit: Commit, *__: Any) -> bool:
    return bool(commit.transitions)


def make_app() -> App:
    settings = load_settings(
        log_format="off",
        lease_ms=2000,
        heartbeat_ms=1000,
        # No task is to be taken for what so many workers die of here, where a test does not say so.
        max_worker_deaths=int(os.environ.get("TEST_MAX_DEATHS", "100")),
        providers=json.loads(os.environ["TEST_PROVIDERS"]),
    )
    most = int(os.environ["TEST_IN_FLIGHT"]) if "TEST_IN_FLIGHT" in os.environ else None
    later = 0.0 if most is None else 0.2
    quick = BatchSettings(poll_first=0.0, poll_next=0.0, poll_later=later, max_start=3, max_in_flight=most)
    return App(settings=settings.holding(quick))


async def main() -> None:
    app = make_app()
    await app.worker(concurrency=5, queues=",".join(app.queues())).run()


if __name__ == "__main__":
    if sys.argv[1:]:
        die_at(sys.argv[1])
    asyncio.run(main())
