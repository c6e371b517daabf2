"""Coalesces events: of several of one entity only the newest version is sent. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from redrive.outbox.event import Event
from redrive.outbox.verdict import Done, Failed, Retry, Superseded, Verdict


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
