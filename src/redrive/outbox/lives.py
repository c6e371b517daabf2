"""Lives of keys: an entity that was deleted, and is there again, is newer than its delete whatever its version is.

Who publishes "create" begins a life (a trigger of the store's, see the migration). Where nobody said so, the source
knows: what it has now is alive. A life is begun here only if nothing was published for its key since it was looked up.

Who erases a scope erases the lives of that key. What indexes have of it stays as new as it was, so its life goes on
under a digest of the key: events that are published later count from its base, which the relay adds to theirs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redrive.errors import InvalidInput
from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.erase import digest_of
from redrive.kernel.reactions import Rows
from redrive.outbox.event import MOST_VERSION, Event, Op
from redrive.outbox.sink import Remembering, Sink
from redrive.outbox.source import Record, Source

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.outbox.projection import Projection

# What the erased key of a life is replaced by, before a digest of it; keys of entities have a colon.
ERASED = "erased "
MOST_BASE = MOST_VERSION // 2  # there is no room for another life behind this
TRIES = 3  # a key for which somebody publishes all the time is left to those events


async def bury(store: Store, projection: str, events: Sequence[Event]) -> None:
    """Notes what is about to be deleted: before the sink is told, so that nothing comes in between."""
    rows = tuple(
        {"projection": projection, "key": digest_of(event.key), "version": event.order}
        for event in events
        if event.op is Op.DELETE
    )
    if rows:
        await store.apply(Commit(rows=[Rows("outbox", "bury", rows)]))


async def buried(store: Store, projection: str, keys: Sequence[str]) -> Mapping[str, int]:
    """Returns the orders at which those of these documents were deleted that were, by key."""
    digests = {digest_of(key): key for key in keys}
    if not digests:
        return {}
    rows = await store.sql.feature_rows("outbox", "buried", projection, json.dumps([*digests]))
    return {digests[row["key_digest"]]: int(row["version"]) for row in rows}


@dataclass(slots=True, frozen=True)
class Life:
    """The latest life of a key. ``deleted``: the version of the delete that ended it; ``changes``: -1 where nothing is
    known of it; ``erased``: the one that its key had when somebody erased it, from whose base this one's counts."""

    base: int = 0
    deleted: int | None = None
    changes: int = -1
    erased: Life | None = None

    @property
    def start(self) -> int:
        """What versions count from in an index: the base of its documents."""
        return self.before + self.base

    @property
    def before(self) -> int:
        """What the relay adds to the base of its events."""
        return 0 if self.erased is None else self.erased.base

    @property
    def ended_at(self) -> int:
        """The order of the delete that ended it, or the one that was erased; -1 while it lasts."""
        own = -1 if self.deleted is None else self.start + self.deleted
        return own if self.erased is None else max(own, self.erased.ended_at)

    def next_behind(self, order: int) -> Life:
        """Returns the next life of its key, in which every version is newer than this order."""
        erased = self.erased
        if erased is not None and erased.deleted is not None:
            erased = erased.next_behind(erased.base - 1)
        return Life(order + 1 - self.before, None, self.changes + 1, erased)


NONE = Life()


async def lives_of(store: Store, projection: str, keys: Iterable[str]) -> Mapping[str, Life]:
    """Returns what is known of these keys' lives: nothing of those that never were deleted."""
    names = {key: erased_name(key) for key in keys}
    rows = await _rows(store, projection, [*names, *names.values()])
    return {
        key: replace(rows.get(key, NONE), erased=rows.get(name))
        for key, name in names.items()
        if key in rows or name in rows
    }


def erased_name(key: str) -> str:
    """Returns what stands in the place of a key that somebody erased."""
    return f"{ERASED}{digest_of(key)}"


async def _rows(store: Store, projection: str, names: Sequence[str]) -> dict[str, Life]:
    rows = await store.sql.feature_rows("outbox", "lives", projection, json.dumps(names)) if names else ()
    return {str(row["key"]): Life(row["base"], row["deleted"], row["changes"]) for row in rows}


def event_of_record(projection: Projection, record: Record, base: int = 0) -> Event:
    """Returns the event that writes an entity as its source has it."""
    entity = record.entity_type, record.entity_id
    event = Event(new_id(), *entity, Op.UPSERT, record.version, record.payload, record.routing, base)
    return event if projection.document is None else replace(event, payload=projection.document(event))


async def resolve_lives(projection: Projection, store: Store, events: Sequence[Event]) -> Sequence[Event]:
    """Returns events with bases that count from what was erased; and in place of those that were published after a
    delete, with a version from before it, what the source has: they are late, or their entity is there again. Without a
    source versions decide."""
    events = await _after_erasures(projection, store, events)
    doubtful = {event.key for event in events if event.after_delete}
    source = await _source(projection, store) if doubtful else None
    if source is None:
        return events
    records = await source.fetch(sorted(doubtful))
    lives = await with_lives(store, projection.name, source, projection.sink(), records)
    there = {record.key: event_of_record(projection, record, life.start) for record, life in lives}
    return [
        replace(there[event.key], id=event.id) if event.after_delete and event.key in there else event
        for event in events
    ]


async def _source(projection: Projection, store: Store) -> Source | None:
    from redrive.outbox.table_source import source_for

    try:
        return await source_for(store, projection)
    except InvalidInput:  # it has none
        return None


async def _after_erasures(projection: Projection, store: Store, events: Sequence[Event]) -> Sequence[Event]:
    """Returns events, those of erased keys with what their bases count from. Of a key that was deleted when it was
    erased, the first that comes begins the next life; an upsert from before the delete does so only if the source has
    its entity, or there is none to ask: else it is late, and stays older than the delete."""
    names = {event.key: erased_name(event.key) for event in events}
    lives = await _rows(store, projection.name, [*names.values()])
    if not lives:
        return events

    def life_of(event: Event) -> Life:
        return lives.get(names[event.key], NONE)

    old = [one for one in events if one.op is Op.UPSERT and one.order <= life_of(one).ended_at - life_of(one).base]
    source = await _source(projection, store) if old else None
    there = {one.key for one in await source.fetch(sorted({one.key for one in old}))} if source is not None else None
    late = {one.id for one in old if there is not None and one.key not in there}
    newest: dict[str, int] = {}
    for event in events:
        if event.id not in late:
            newest[names[event.key]] = max(newest.get(names[event.key], 0), event.order)
    for _ in range(TRIES):
        ended = {name: one for name, one in lives.items() if name in newest and one.deleted is not None}
        if not ended:
            break
        # What is newer than the delete anyway goes on in that life, as it does where nothing was erased.
        begun = {
            name: one.next_behind(one.base - 1 if newest[name] > (one.deleted or 0) else min(one.ended_at, MOST_BASE))
            for name, one in ended.items()
        }
        await _begin(store, projection.name, begun)
        lives = await _rows(store, projection.name, [*names.values()])
    return [
        one
        if one.id in late or (base := life_of(one).base) > MOST_VERSION - one.order
        else replace(one, base=one.base + base)
        for one in events
    ]


async def with_lives(
    store: Store,
    projection: str,
    source: Source,
    sink: Sink,
    records: Sequence[Record],
    *,
    live: bool = True,
    floors: Mapping[str, int] | None = None,
) -> list[tuple[Record, Life]]:
    """Returns records with their lives. Those of keys that were deleted once are read again, so that what was deleted
    since they were read is left out. ``live``: what the live index remembers has to be got over, too; ``floors`` are
    orders of documents that have to be, by key."""
    floors = floors or {}
    known = await _looked_up(store, projection, sink, [one.key for one in records], floors, live=live)
    found = [(one, NONE) for one in records if one.key not in known]
    doubtful = [one.key for one in records if one.key in known]
    for _ in range(TRIES):
        if not doubtful:
            break
        before = await _looked_up(store, projection, sink, doubtful, floors, live=live)
        there = {one.key: one for one in await source.fetch(doubtful)}
        begun = {
            key: life.next_behind(floor)
            for key, (life, floor) in before.items()
            if key in there and floor < MOST_BASE and (life.ended_at >= 0 or floor >= life.start + there[key].version)
        }
        if begun:
            rows = dict(begun)
            for key, life in begun.items():
                if life.erased is not None and life.erased != before[key][0].erased:
                    rows[erased_name(key)] = life.erased
            await _begin(store, projection, rows)
            # Again: what was published before it began is in the life before.
            there = {one.key: one for one in await source.fetch(doubtful)}
        now = await lives_of(store, projection, doubtful)
        left = list[str]()
        for key in doubtful:
            was, _ = before.get(key, (NONE, -1))
            if (life := now.get(key, NONE)) != begun.get(key, was):
                left.append(key)
            elif key in there:
                found.append((there[key], life))
        doubtful = left
    return found


async def _looked_up(
    store: Store, projection: str, sink: Sink, keys: Sequence[str], floors: Mapping[str, int], *, live: bool
) -> dict[str, tuple[Life, int]]:
    """Returns the lives of keys that were deleted once, or have a floor, each with what is newest of its floor and its
    known deletes, by order; or -1."""
    lives, newest = await lives_of(store, projection, keys), {key: floors[key] for key in keys if key in floors}
    if sink.compares_versions and not sink.remembers_deletes:
        for key, order in (await buried(store, projection, keys)).items():
            newest[key] = max(newest.get(key, -1), order)
    if live and isinstance(sink, Remembering):
        for one in await sink.deletions(keys):
            newest[one.key] = max(newest.get(one.key, -1), one.order)
    found = dict[str, tuple[Life, int]]()
    for key in {*lives, *newest}:
        life = lives.get(key, NONE)
        found[key] = life, max(newest.get(key, -1), life.ended_at)
    return found


async def _begin(store: Store, projection: str, lives: Mapping[str, Life]) -> None:
    """Begins lives, each only if its key's has changed no more than that since it was read."""
    rows: tuple[dict[str, Any], ...] = tuple(
        {"projection": projection, "key": key, "base": life.base, "changes": life.changes - 1}
        for key, life in lives.items()
    )
    if rows:
        await store.apply(Commit(rows=[Rows("outbox", "begin_lives", rows)]))
