"""A worker of remote batches that kills itself where it is told to: ``python dying.py POINT``; without one it works."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from redrive import App
from redrive.batches.remote.handlers import Steps
from redrive.batches.settings import BatchSettings
from redrive.remote.checked import RemoteProvider
from redrive.settings import load_settings

# Each step of a batch, before and after it has landed; a call of the provider that was answered, before that landed.
POINTS = (
    "dispatch:before",
    "dispatch:after",
    "start:after",
    "poll:after",
    "settle:before",
    "settle:after",
)
PLACES: dict[str, tuple[type, str]] = {
    "dispatch": (Steps, "_dispatch"),
    "start": (RemoteProvider, "start"),
    "poll": (RemoteProvider, "poll"),
    "settle": (Steps, "_settle"),
}


def die_at(point: str) -> None:
    name, when = point.split(":")
    owner, method = PLACES[name]
    original: Callable[..., Any] = getattr(owner, method)

    async def deadly(*given: Any) -> Any:
        if when == "after":
            await original(*given)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, method, deadly)


def make_app() -> App:
    settings = load_settings(
        log_format="off",
        lease_ms=2000,
        heartbeat_ms=1000,
        max_worker_deaths=100,  # no task is to be taken for what so many workers die of here
        providers=json.loads(os.environ["TEST_PROVIDERS"]),
    )
    quick = BatchSettings(poll_first=0.0, poll_next=0.0, poll_later=0.0, max_start=3)
    return App(settings=settings.holding(quick))


async def main() -> None:
    app = make_app()
    await app.worker(concurrency=5, queues=",".join(app.queues())).run()


if __name__ == "__main__":
    if sys.argv[1:]:
        die_at(sys.argv[1])
    asyncio.run(main())
