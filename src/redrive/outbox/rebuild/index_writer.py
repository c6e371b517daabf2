"""Writes pages of a source into the new index of a rebuild: in the same way as events, in requests that it takes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from redrive.outbox.event import Event
from redrive.outbox.relay.sink_writer import SinkWriter
from redrive.outbox.sink import Sink
from redrive.outbox.verdict import Done, Failed, Superseded

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.outbox.operation_driver import Driver
    from redrive.outbox.projection import Projection


class NotNow(Exception):
    """The sink did not take all of a page: it is written again."""


class RefusedDocument(Exception):
    """Documents that the sink never will take, more than are allowed."""

    def __init__(self, refused: Sequence[str]) -> None:
        some = "a document" if len(refused) == 1 else f"{len(refused)} documents"
        super().__init__(f"the new index does not take {some} of a page")
        self.refused = refused


class _OneIndex:
    """A projection with one index: that of a rebuild."""

    document = None

    def __init__(self, projection: Projection, index: str) -> None:
        self.name = projection.name
        self._projection, self._index = projection, index

    def sink(self) -> Sink:
        return self._projection.sink()

    async def indexes(self, store: Store) -> Sequence[str | None]:
        return (self._index,)

    def arrived(self) -> None: ...

    async def given_up(self, store: Store, index: str) -> bool:
        return False

    async def refused(self, store: Store, index: str, found: Mapping[str, str]) -> bool:
        return False


class IndexWriter:
    """Writes to one index. Deletes that redrive remembers for its sink are looked up here, too: after the page was
    read, so that one which was deleted since is not brought back."""

    def __init__(self, driver: Driver, index: str) -> None:
        own, self._projection = driver.settings, driver.projection
        self._store, self._stopping = driver.store, driver.stopping
        self._target = _OneIndex(driver.projection, index)
        self._size = driver.projection.request_size(own)

    async def write(self, events: Sequence[Event]) -> list[str]:
        """Writes events; returns which of them the sink never will take, and why. What it does not take now is raised:
        all of it is written again."""
        if not events:
            return []
        writer = SinkWriter(self._target, self._size, self._store, self._stopping)
        await writer.write(events, {event.id: _size(event.payload) for event in events})
        refused = list[str]()
        for event in events:
            verdict = writer.verdicts.get(event.id)
            if isinstance(verdict, Failed):
                refused.append(f"{event.key}: {verdict.reason}: {verdict.message}"[:300])
            elif not isinstance(verdict, Done | Superseded):
                raise NotNow(f"{event.key}: {'the worker stops' if verdict is None else verdict.message}")
        return refused


def _size(payload: Any) -> int:
    return len(json.dumps(payload, ensure_ascii=False, default=str))
