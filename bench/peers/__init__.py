"""What is measured: redrive, and what people would use instead. One adapter a file, a few dozen lines each.

An adapter says how to make the schema, how to enqueue, and which command is one worker process. Every peer runs at the
best settings that one would also use in production; they are written down in ``settings`` and printed in the report.
All handlers do the same: ``bench.ledger.hit(n)``.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

from bench.environment import version

URL = "BENCH_URL"
BULK = 1000  # rows of one bulk call, for everybody


class Peer:
    """One queue in one empty database. Tasks are numbered; ``pad`` makes the payload larger."""

    name: ClassVar[str]
    backend: ClassVar[str]  # postgres, redis or sqlite
    package: ClassVar[str]
    settings: ClassVar[str]
    usual_rate: ClassVar[int]  # tasks per second with one process; only used to choose how many tasks to drain
    batch: ClassVar[int] = 1  # tasks that one worker process takes at once
    bulk: ClassVar[bool] = True  # can enqueue many in one call
    concurrent: ClassVar[bool] = True  # has a producer for event loops
    pools: ClassVar[tuple[int, ...]] = (0,)  # connections for concurrent producers that are tried; the best counts
    pool_size = 0
    most_processes: ClassVar[int] = 64

    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self) -> None:
        """Make the schema and connect the producer."""

    async def close(self) -> None:
        """Disconnect the producer."""

    async def enqueue(self, n: int, pad: str = "") -> None:
        raise NotImplementedError

    async def enqueue_concurrently(self, n: int) -> None:
        """The same, called by many coroutines at once."""
        await self.enqueue(n)

    async def enqueue_many(self, numbers: Sequence[int], pad: str = "") -> None:
        """At most ``BULK`` at once."""
        for n in numbers:
            await self.enqueue(n, pad)

    async def left(self) -> int | None:
        """How many tasks the queue still holds, by its own account; None when it cannot tell."""
        return None

    def command(self) -> list[str]:
        """One worker process. It finds the database in the environment."""
        return [sys.executable, "-m", type(self).__module__]

    def environment(self) -> dict[str, str]:
        return {URL: self.url}


# In the order in which they are measured: what the targets need comes first.
MODULES = {
    "redrive-postgres": "redrive_postgres",
    "pgqueuer": "pgqueuer_postgres",
    "redrive-sqlite": "redrive_sqlite",
    "huey-sqlite": "huey_sqlite",
    "awa": "awa_postgres",
    "oban": "oban_postgres",
    "absurd": "absurd_postgres",
    "procrastinate": "procrastinate_postgres",
    "dramatiq": "dramatiq_redis",
    "huey-redis": "huey_redis",
    "taskiq": "taskiq_redis",
    "arq": "arq_redis",
    "celery": "celery_redis",
    "persist-queue": "persist_queue_sqlite",
}


class NotInstalled(Exception):
    """A peer that is not in the environment; its message is the reason in the report."""


def load(name: str) -> type[Peer]:
    try:
        found: type[Peer] = importlib.import_module(f"bench.peers.{MODULES[name]}").Adapter
    except ImportError as error:
        reason = REASONS.get(name, "it did not install")
        raise NotInstalled(f"{reason} ({error})") from None
    if version(found.package) is None:
        raise NotInstalled("it did not install")
    return found


REASONS = {"oban": "it needs Python 3.12 or newer"} if sys.version_info < (3, 12) else {}


def worker_url() -> str:
    """In a worker process (and in modules that it imports): where its queue is."""
    return os.environ.get(URL, "redis://127.0.0.1:1/0")


def payload(n: int, pad: str) -> dict[str, Any]:
    return {"n": n, "pad": pad} if pad else {"n": n}
