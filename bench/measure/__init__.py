"""The measurements, one file each. All take a ``Bench``: servers, sizes, and where progress is shown."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

from bench.ledger import Ledger
from bench.peers import BULK, Peer
from bench.plan import Plan
from bench.servers import Servers
from bench.workers import WARM_UP


@dataclass
class Bench:
    servers: Servers
    plan: Plan
    started: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - self.started:6.0f} s  {text}\n")
        sys.stderr.flush()

    def out_of_time(self, needed: float = 8.0) -> bool:
        """Would something that takes so many seconds end too late?"""
        return self.plan.deadline is not None and time.monotonic() - self.started + needed > self.plan.deadline

    @contextlib.asynccontextmanager
    async def queue(self, adapter: type[Peer], **options: Any) -> AsyncIterator[Peer]:
        """A peer in an empty database of its own."""
        url = await self.servers.fresh(adapter.backend, adapter.name)
        peer = adapter(url)
        for name, value in options.items():
            setattr(peer, name, value)
        await peer.open()
        try:
            yield peer
        finally:
            await peer.close()
            await self.servers.drop(url)

    @contextlib.contextmanager
    def ledger(self, tasks: int) -> Iterator[Ledger]:
        path = self.servers.directory / f"ledger-{time.monotonic_ns()}"
        made = Ledger(path, WARM_UP + tasks)
        try:
            yield made
        finally:
            made.close()
            path.unlink()


async def fill(peer: Peer, tasks: int, pad: str = "", start: int = WARM_UP) -> None:
    """Enqueue tasks numbered from ``start``, in calls of ``BULK`` tasks or a few megabytes."""
    step = max(min(BULK, 4_000_000 // (len(pad) + 1)), 1)
    for first in range(start, start + tasks, step):
        await peer.enqueue_many(range(first, min(first + step, start + tasks)), pad)


def not_measured(error: BaseException) -> dict[str, Any]:
    """A result in place of figures: one peer that breaks must not end the run."""
    said = f"{type(error).__name__}: {error}".removeprefix("Failed: ").removeprefix("NotFound: ")
    return {"not_measured": said.strip()[:400]}
