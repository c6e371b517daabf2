"""The application of workers that project events in the bench, and of the plain bulk kind that they are compared with.

Both leave their marks in the ledger: the bulk handler for each task, the projection when its sink has answered. How
many tasks the worker had in its memory at most is counted, too.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from bench.ledger import hit
from redrive import App, Bulk
from redrive.outbox.event import Event
from redrive.outbox.sinks import sink_from_url
from redrive.outbox.verdict import Verdict
from redrive.worker.run import Run
from redrive.worker.state import Runs

SINK, MOST = "BENCH_SINK", "BENCH_MOST"
PLAIN, PROJECTION = "BULK", "bench"
AT_ONCE = 500  # what a projection sends at once by default

app = App()


@app.task(PLAIN, bulk=AT_ONCE)
async def plain(bulk: Bulk) -> None:
    for item in bulk:
        hit(item.payload["n"])


class Marking:
    """A sink that leaves a mark for each event that it has answered."""

    def __init__(self, url: str) -> None:
        self._sink = sink_from_url(url)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    async def write(self, events: Sequence[Event], index: str | None = None) -> Sequence[Verdict]:
        verdicts = await self._sink.write(events, index)
        for event in events:
            hit(int(event.entity_id))
        return verdicts


def _count_in(path: Path) -> None:
    """Notes in a file how many tasks the worker has at most, from claim to settlement."""
    with path.open("r+b") as file:
        noted = mmap.mmap(file.fileno(), 8)
    most = 0
    add = Runs.__setitem__

    def counting(self: Runs, key: UUID, run: Run) -> None:
        nonlocal most
        add(self, key, run)
        if len(self) > most:
            most = len(self)
            struct.pack_into("q", noted, 0, most)

    Runs.__setitem__ = counting  # type: ignore[method-assign, assignment]


app.outbox.projection(PROJECTION, sink=lambda: Marking(os.environ[SINK]))
if MOST in os.environ:
    _count_in(Path(os.environ[MOST]))
