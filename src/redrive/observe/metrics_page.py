"""Makes the page of /metrics: what this process has counted, and, where it tells them, the figures of the fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

from redrive.observe.exposition import Told, render
from redrive.observe.metrics import Metric
from redrive.observe.samples import Samples

Processes = Callable[[], Mapping[str, Samples]]
Fleet = Callable[[], Awaitable[Samples]]


class MetricsPage:
    """``processes`` returns samples by the name of the worker, in any thread, which serve one ``connection``;
    ``fleets`` those of the whole fleet of each connection that is told."""

    def __init__(
        self,
        table: Sequence[Metric],
        connection: str,
        processes: Processes,
        fleets: Mapping[str, Fleet] = MappingProxyType({}),
    ) -> None:
        self._table = table
        self._connection = connection
        self._processes = processes
        self._fleets = fleets

    async def make(self, accept: str = "") -> tuple[bytes, str]:
        """Returns the page and its content type. It is written in a thread: with hundreds of kinds that takes a tenth
        of a second, in which the loop has tasks to run."""
        found = await asyncio.gather(*(fleet() for fleet in self._fleets.values()))
        return await asyncio.to_thread(self.write, dict(zip(self._fleets, found, strict=True)), accept)

    def write(self, fleets: Mapping[str, Samples], accept: str) -> tuple[bytes, str]:
        return render(self._table, Told(self._connection, self._processes(), fleets), accept)
