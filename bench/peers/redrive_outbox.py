"""redrive's outbox on PostgreSQL, and the plain bulk kind that it is held against: the same worker, the same size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from bench.peers.outbox_app import MOST, PLAIN, PROJECTION, SINK
from bench.peers.outbox_app import app as application
from bench.peers.redrive_postgres import Adapter as OnPostgres
from redrive.outbox.event import kind_of

TEXT = "the quick brown fox jumps over the lazy dog and looks for the way back to where it came from"


class Adapter(OnPostgres):
    application: ClassVar[str] = "bench.peers.outbox_app:app"
    sink: str | None = None  # None: the plain bulk kind
    most: Path | None = None  # where the worker notes how many tasks it has at most

    async def open(self) -> None:
        await super().open()
        self.app.registry = application.registry
        # A kind of its own lane is known from the first start of a worker on: that comes before the events.

    async def enqueue(self, n: int, pad: str = "") -> None:
        await self.enqueue_many([n], pad)

    async def enqueue_many(self, numbers: Sequence[int], pad: str = "") -> None:
        if self.sink is None:
            await self.app.enqueue_many([(PLAIN, {"n": n, **document(n)}) for n in numbers])
            return
        events = [("note", n, "upsert", 1, document(n)) for n in numbers]
        await self.app.outbox.publish_many(None, PROJECTION, events)

    async def left(self) -> int | None:
        counts = await (await self.app.store()).counts()
        waiting, kinds = ("queued", "delayed", "running"), (PLAIN, kind_of(PROJECTION))
        return sum(count.n for count in counts if count.state.value in waiting and count.kind in kinds)

    def command(self) -> list[str]:
        return [part.replace("bench.peers.redrive_app:app", self.application) for part in super().command()]

    def environment(self) -> dict[str, str]:
        noted = {} if self.most is None else {MOST: str(self.most)}
        return {**super().environment(), **noted, SINK: self.sink or "fts5:///unused.db"}


def document(n: int) -> dict[str, Any]:
    return {"title": f"note {n}", "text": f"{TEXT} {n}"}
