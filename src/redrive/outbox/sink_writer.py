"""Writes events to a sink: in requests that it takes, the newest version of each entity, tombstones first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from redrive.errors import RedriveError
from redrive.kernel.classify import FailureType, classify
from redrive.outbox.event import Event, Op
from redrive.outbox.lives import buried, bury
from redrive.outbox.sink import TooLarge
from redrive.outbox.verdict import Done, Failed, Retry, Superseded, Verdict

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.outbox.projection import Projection, RequestSize

MOST_TOLD = 200  # characters of why a document was refused
PICKED = 10  # events that are tried alone before the others are
TOO_LARGE = Failed("http_4xx", "the sink refuses this document for its size")


class TurnedAway(Exception):
    """The sink answered a whole request with "not now": what was not sent yet is not sent either."""

    def __init__(self, verdict: Retry) -> None:
        super().__init__(verdict.message)
        self.verdict = verdict


@dataclass(slots=True)
class Entity:
    """The events of one entity that have no verdict yet, the newest first."""

    events: list[Event]

    @property
    def newest(self) -> Event:
        return self.events[0]

    def told(self, verdict: Verdict) -> Mapping[UUID, Verdict]:
        """Takes the sink's verdict on the newest; returns what follows, by event. Older ones are superseded by a newest
        that arrived, and wait with one that has to; one that never will arrive leaves its place to the next."""
        if len(self.events) == 1:
            (newest,), self.events = self.events, []
            return {newest.id: verdict}
        newest, *older = self.events
        if isinstance(verdict, Failed):
            self.events = older
            return {newest.id: verdict}
        self.events = []
        follows: Verdict = Superseded() if isinstance(verdict, Done | Superseded) else verdict
        return {newest.id: verdict, **{event.id: follows for event in older}}


def by_entity(events: Iterable[Event]) -> list[Entity]:
    """Returns the events by entity. Of two with one order the one that was published last comes first: ids are in the
    order of their time."""
    found: dict[str, list[Event]] = {}
    for event in events:
        found.setdefault(event.key, []).append(event)
    for one in found.values():
        if len(one) > 1:
            one.sort(key=lambda event: (event.order, event.id), reverse=True)
    return [Entity(one) for one in found.values()]


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Returns what several indexes together say of one event: it is done when all of them have it."""
    if len(verdicts) == 1:
        return verdicts[0]
    for kind in (Failed, Retry, Done):
        for verdict in verdicts:
            if isinstance(verdict, kind):
                return verdict
    return verdicts[0]


def is_of_the_sink(error: Exception) -> bool:
    """Returns whether an error is the sink's own trouble: it cannot be reached, is too slow, or turns everybody away.
    Any other may be due to one event."""
    found = classify(error)
    outage = found.failure_type in (FailureType.NETWORK, FailureType.TIMEOUT) or found.reason.startswith("http_")
    return outage or isinstance(error, OSError | RedriveError)


class SinkWriter:
    """Writes the events of one call: ``verdicts`` has what the sink said so far, also when it fails in between.
    ``index``: the one that a rebuild fills, and nowhere else; else the live one, and one that a rebuild fills."""

    def __init__(
        self,
        projection: Projection,
        size: RequestSize,
        store: Store,
        stopping: Callable[[], bool],
        index: str | None = None,
    ) -> None:
        self._projection = projection
        self._index = index
        self._sink = projection.sink()
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
                elif type(verdict) is Done and self._index is None:
                    self._projection.arrived()
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
            indexes = (self._index,) if self._index is not None else await self._projection.indexes(self._store)
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
        its_own = refused if refused and await self._projection.refused(self._store, index, refused) else ()
        both = zip(events, said, found, strict=True)
        return [old if event.key in its_own else worst((old, new)) for event, old, new in both]

    async def _written(self, events: Sequence[Event], index: str | None) -> Sequence[Verdict] | None:
        """Returns the verdicts of one index; None: it is that of a rebuild which was given up meanwhile."""
        try:
            found = await self._sink.write(events, index)
        except Exception:
            if not await self._given_up(index):
                raise
            return None
        if all(isinstance(one, Done | Superseded) for one in found):
            return found
        return None if await self._given_up(index) else found

    async def _given_up(self, index: str | None) -> bool:
        """Returns whether what cannot be written to an index is no loss, for a rebuild beside was given up. Who drives
        the rebuild is told of all that goes wrong."""
        beside = index is not None and self._index is None
        return beside and await self._projection.given_up(self._store, str(index))

    async def _deleted(self, events: Sequence[Event]) -> Mapping[str, int]:
        """Notes what these events delete, and returns at which orders their documents were deleted before."""
        if not self._sink.compares_versions:
            return {}  # whoever reads it gets versions, and has to remember them
        await bury(self._store, self._projection.name, events)
        return await buried(self._store, self._projection.name, [one.key for one in events if one.op is Op.UPSERT])
