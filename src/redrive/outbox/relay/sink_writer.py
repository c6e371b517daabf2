"""Writes events to a sink: in requests that it takes, the newest version of each entity, tombstones first."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from redrive.outbox.event import Event, Op
from redrive.outbox.projection import RequestSize
from redrive.outbox.relay.lives import buried, bury
from redrive.outbox.relay.policy import Entity, by_entity, is_of_the_sink, worst
from redrive.outbox.sink import Sink, TooLarge
from redrive.outbox.verdict import Done, Failed, Retry, Superseded, Verdict

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store

MOST_TOLD = 200  # characters of why a document was refused
PICKED = 10  # events that are tried alone before the others are
TOO_LARGE = Failed("http_4xx", "the sink refuses this document for its size")


class TurnedAway(Exception):
    """The sink answered a whole request with "not now": what was not sent yet is not sent either."""

    def __init__(self, verdict: Retry) -> None:
        super().__init__(verdict.message)
        self.verdict = verdict


class Target(Protocol):
    """What a writer needs of a projection."""

    @property
    def name(self) -> str: ...
    @property
    def document(self) -> Callable[[Event], Any] | None: ...

    def sink(self) -> Sink:
        """Returns the sink of the running event loop."""
        ...

    async def indexes(self, store: Store) -> Sequence[str | None]:
        """Returns where events go: the live index (None), and one that a rebuild fills."""
        ...

    def arrived(self) -> None:
        """Notes that the sink has taken events just now."""
        ...

    async def given_up(self, store: Store, index: str) -> bool:
        """Returns whether the index of a rebuild was dropped: what could not be written there is no loss."""
        ...

    async def refused(self, store: Store, index: str, found: Mapping[str, str]) -> bool:
        """Tells a rebuild which documents its index does not take, and why; returns False where it is too late."""
        ...


class SinkWriter:
    """Writes the events of one call: ``verdicts`` has what the sink said so far, also when it fails in between."""

    def __init__(self, target: Target, size: RequestSize, store: Store, stopping: Callable[[], bool]) -> None:
        self._target = target
        self._sink = target.sink()
        self._size = size
        self._store = store
        self._stopping = stopping
        self.verdicts: dict[UUID, Verdict] = {}
        self.errors: dict[UUID, Exception] = {}  # what the sink raises for an event alone

    async def write(self, events: Sequence[Event], sizes: Mapping[UUID, int]) -> None:
        """Writes the newest of each entity; where that never can be written, the next newest."""
        entities = by_entity(events)
        while entities and not self._stopping():
            await self._newest(entities, sizes)
            entities = [one for one in entities if one.events]

    async def _newest(self, entities: Sequence[Entity], sizes: Mapping[UUID, int]) -> None:
        """Writes the newest event of each, in as many requests as it takes, until the worker stops."""
        at = 0
        while at < len(entities) and not self._stopping():
            rest = entities[at : at + self._size.events]
            bytes_of = [sizes[one.newest.id] for one in rest]
            chunk = rest[: self._size.cut(bytes_of)]
            try:
                verdicts = await self._request([one.newest for one in chunk])
            except TooLarge:
                if len(chunk) > 1:
                    self._size.was_too_large(len(chunk), sum(bytes_of[: len(chunk)]))
                    continue
                verdicts = [TOO_LARGE]
            except Exception as error:
                if is_of_the_sink(error):
                    raise
                verdicts = await self._one_by_one([one.newest for one in chunk], error)
            away: Retry | None = None
            for one, verdict in zip(chunk, verdicts, strict=True):
                self.verdicts.update(one.told(verdict))
                if type(verdict) is Retry and verdict.whole:
                    away = verdict
                elif type(verdict) is Done:
                    self._target.arrived()
            if away is not None:
                raise TurnedAway(away)
            at += len(chunk)

    async def _one_by_one(self, events: Sequence[Event], error: Exception) -> list[Verdict]:
        """Returns verdicts on events of which one made the sink raise, in place of an answer: only those that do so by
        themselves count an attempt. Where some that were picked all do, it is the sink, and nothing more is tried."""
        verdicts: dict[UUID, Verdict] = {}
        picked = events[:: max(len(events) // PICKED, 1)][:PICKED]
        for event in picked:
            verdicts[event.id] = await self._alone(event)
        if all(event.id in self.errors for event in picked) and len(events) > 1:
            self.errors.clear()
            raise error
        rest = [event for event in events if event.id not in verdicts]
        verdicts.update(zip((event.id for event in rest), await self._halves(rest), strict=True))
        return [verdicts[event.id] for event in events]

    async def _halves(self, events: Sequence[Event]) -> list[Verdict]:
        if len(events) < 2:
            return [await self._alone(event) for event in events]
        try:
            return await self._request(events)
        except Exception as error:
            if is_of_the_sink(error):
                raise
        middle = len(events) // 2
        return [*await self._halves(events[:middle]), *await self._halves(events[middle:])]

    async def _alone(self, event: Event) -> Verdict:
        try:
            [verdict] = await self._request([event])
        except TooLarge:
            return TOO_LARGE
        except Exception as error:
            if is_of_the_sink(error):
                raise
            self.errors[event.id] = error
            return Retry("unknown_exception", f"{type(error).__name__}: {error}")
        return verdict

    async def _request(self, events: Sequence[Event]) -> list[Verdict]:
        """Returns the verdicts on what goes into one request, of all indexes that it goes to."""
        deleted = {} if self._sink.remembers_deletes else await self._deleted(events)
        live = [event for event in events if deleted.get(event.key, -1) < event.order or event.op is Op.DELETE]
        verdicts: dict[UUID, Verdict] = {}
        if live:
            began = time.monotonic()
            indexes = await self._target.indexes(self._store)
            first, *others = indexes
            said = await self._written(live, first) or ()
            for index in others:
                said = await self._also_written(live, str(index), said)
            self._size.took(len(live), time.monotonic() - began)
            verdicts = {event.id: verdict for event, verdict in zip(live, said, strict=True)}
        return [verdicts.get(event.id, Superseded()) for event in events]

    async def _also_written(self, events: Sequence[Event], index: str, said: Sequence[Verdict]) -> Sequence[Verdict]:
        """Writes to the index of a rebuild, too; returns the verdicts of both, after what the live one ``said``. What
        only the new one never will take is told to the rebuild, and is no failure of the event."""
        found = await self._written(events, index)
        if found is None:
            return said
        refused = {
            event.key: f"{new.reason}: {new.message}"[:MOST_TOLD]
            for event, old, new in zip(events, said, found, strict=True)
            if isinstance(new, Failed) and isinstance(old, Done | Superseded)
        }
        its_own = refused if refused and await self._target.refused(self._store, index, refused) else ()
        both = zip(events, said, found, strict=True)
        return [old if event.key in its_own else worst((old, new)) for event, old, new in both]

    async def _written(self, events: Sequence[Event], index: str | None) -> Sequence[Verdict] | None:
        """Returns the verdicts of one index; None: it is that of a rebuild which was given up meanwhile."""
        try:
            found = await self._sink.write(events, index)
        except Exception:
            if index is None or not await self._target.given_up(self._store, index):
                raise
            return None
        if index is None or all(isinstance(one, Done | Superseded) for one in found):
            return found
        return None if await self._target.given_up(self._store, index) else found

    async def _deleted(self, events: Sequence[Event]) -> Mapping[str, int]:
        """Notes what these events delete, and returns at which orders their documents were deleted before."""
        if not self._sink.compares_versions:
            return {}  # whoever reads it gets versions, and has to remember them
        await bury(self._store, self._target.name, events)
        return await buried(self._store, self._target.name, [one.key for one in events if one.op is Op.UPSERT])
