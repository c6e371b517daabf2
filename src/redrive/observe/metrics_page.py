"""Makes the page of /metrics: what this process has counted, and, where it tells them, the figures of the fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from redrive.observe.exposition import render
from redrive.observe.metrics import Metric
from redrive.observe.samples import Samples

Processes = Callable[[], Mapping[str, Samples]]
Fleet = Callable[[], Awaitable[Samples]]


class MetricsPage:
    """``processes`` returns samples by the name of the worker, in any thread; ``fleet`` those of the whole fleet."""

    def __init__(self, table: Sequence[Metric], processes: Processes, fleet: Fleet | None = None) -> None:
        self._table = table
        self._processes = processes
        self._fleet = fleet

    async def make(self, accept: str = "") -> tuple[bytes, str]:
        """Returns the page and its content type. It is written in a thread: with hundreds of kinds that takes a tenth
        of a second, in which the loop has tasks to run."""
        fleet = {} if self._fleet is None else await self._fleet()
        return await asyncio.to_thread(self.write, fleet, accept)

    def write(self, fleet: Samples, accept: str) -> tuple[bytes, str]:
        return render(self._table, self._processes(), fleet, accept)
