"""Lives of keys: an entity that was deleted, and is there again, is newer than its delete whatever its version is.

Who publishes "create" begins a life (a trigger of the store's, see the migration). Where nobody said so, the source
knows: what it has now is alive. A life is begun here only if nothing was published for its key since it was looked up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redrive.errors import InvalidInput
from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.reactions import Rows
from redrive.outbox.event import MOST_VERSION, Event, Op
from redrive.outbox.relay.tombstones import buried
from redrive.outbox.sink import Remembering, Sink
from redrive.outbox.source import Record, Source

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.outbox.projection import Projection

TRIES = 3  # a key for which somebody publishes all the time is left to those events


@dataclass(slots=True, frozen=True)
class Life:
    """The latest life of a key. ``deleted``: the version of the delete that ended it; ``changes``: -1 where nothing is
    known of it."""

    base: int = 0
    deleted: int | None = None
    changes: int = -1


NONE = Life()


async def lives_of(store: Store, projection: str, keys: Sequence[str]) -> Mapping[str, Life]:
    """Returns what is known of these keys' lives: nothing of those that never were deleted."""
    rows = await store.feature_rows("outbox", "lives", projection, json.dumps(list(keys))) if keys else ()
    return {str(row["key"]): Life(row["base"], row["deleted"], row["changes"]) for row in rows}


def event_of_record(projection: Projection, record: Record, base: int = 0) -> Event:
    """Returns the event that writes an entity as its source has it."""
    entity = record.entity_type, record.entity_id
    event = Event(new_id(), *entity, Op.UPSERT, record.version, record.payload, record.routing, base)
    return event if projection.document is None else replace(event, payload=projection.document(event))


async def as_in_source(projection: Projection, store: Store, events: Sequence[Event]) -> Sequence[Event]:
    """Returns events, and in place of those that were published after a delete, with a version from before it, what the
    source has: they are late, or their entity is there again. Without a source versions decide."""
    doubtful = {event.key for event in events if event.after_delete}
    if not doubtful:
        return events
    from redrive.outbox.table_source import source_for

    try:
        source = await source_for(store, projection)
    except InvalidInput:  # it has none
        return events
    records = await source.fetch(sorted(doubtful))
    bases = await with_bases(store, projection.name, source, projection.sink(), records)
    there = {record.key: event_of_record(projection, record, base) for record, base in bases}
    return [
        replace(there[event.key], id=event.id) if event.after_delete and event.key in there else event
        for event in events
    ]


async def with_bases(
    store: Store, projection: str, source: Source, sink: Sink, records: Sequence[Record], *, live: bool = True
) -> list[tuple[Record, int]]:
    """Returns records with the bases of their lives. Those of keys that were deleted once are read again, so that what
    was deleted since they were read is left out. ``live``: what the live index remembers has to be got over, too."""
    known = await _looked_up(store, projection, sink, [one.key for one in records], live=live)
    found = [(one, 0) for one in records if one.key not in known]
    doubtful = [one.key for one in records if one.key in known]
    for _ in range(TRIES):
        if not doubtful:
            break
        before = await _looked_up(store, projection, sink, doubtful, live=live)
        there = {one.key: one for one in await source.fetch(doubtful)}
        ended = {
            key: (life, floor)
            for key, (life, floor) in before.items()
            if key in there and (life.deleted is not None or floor >= life.base + there[key].version)
        }
        await _begin(store, projection, ended)
        now = await lives_of(store, projection, doubtful)
        left = list[str]()
        for key in doubtful:
            life, (was, _) = now.get(key, NONE), before.get(key, (NONE, -1))
            begun = key in ended and life.deleted is None and life.changes == was.changes + 1
            if key in there and (begun or life.changes == was.changes):
                found.append((there[key], life.base))
            elif life.changes != was.changes:
                left.append(key)
        doubtful = left
    return found


async def _looked_up(
    store: Store, projection: str, sink: Sink, keys: Sequence[str], *, live: bool
) -> dict[str, tuple[Life, int]]:
    """Returns the lives of keys that were deleted once, each with the order of the newest known delete, or -1."""
    lives, floors = await lives_of(store, projection, keys), dict[str, int]()
    if sink.compares_versions and not sink.remembers_deletes:
        floors.update(await buried(store, projection, keys))
    if live and isinstance(sink, Remembering):
        for one in await sink.deletions(keys):
            floors[one.key] = max(floors.get(one.key, -1), one.order)
    found = dict[str, tuple[Life, int]]()
    for key in {*lives, *floors}:
        life = lives.get(key, NONE)
        ended = -1 if life.deleted is None else life.base + life.deleted
        found[key] = life, max(floors.get(key, -1), ended)
    return found


async def _begin(store: Store, projection: str, ended: Mapping[str, tuple[Life, int]]) -> None:
    rows = tuple(
        {"projection": projection, "key": key, "base": floor + 1, "changes": life.changes}
        for key, (life, floor) in ended.items()
        if floor < MOST_VERSION // 2
    )
    if rows:
        await store.apply(Commit(rows=[Rows("outbox", "begin_lives", rows)]))
