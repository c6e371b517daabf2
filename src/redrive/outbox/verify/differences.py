"""Finds out which documents really differ: looks at keys again, so that events on their way are no differences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from redrive.outbox.relay.lives import NONE, Life, lives_of
from redrive.outbox.sink import Rebuildable, Stored
from redrive.outbox.source import Record, Source

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.outbox.projection import Projection

FETCHED_AT_ONCE = 500


class Kind(StrEnum):
    """How a document differs."""

    MISSING = "missing"  # the source has it, the sink does not
    STALE = "stale"  # the sink has an older version, or one of an earlier life of its key
    EXTRA = "extra"  # the sink has it, the source does not
    AHEAD = "ahead"  # the sink has a newer one than the source: versions went back, or the store lost the key's life


@dataclass(slots=True, frozen=True)
class Difference:
    """A document that differs: as the source has it, and as the sink has it; and the life of its key."""

    key: str
    kind: Kind
    record: Record | None
    stored: Stored | None
    life: Life = NONE


@dataclass(slots=True)
class Looked:
    """Keys that were looked at again: those that differ, and those with events on their way."""

    differences: list[Difference] = field(default_factory=list)
    moving: list[str] = field(default_factory=list)


async def look_again(
    store: Store,
    projection: Projection,
    source: Source,
    sink: Rebuildable,
    keys: Sequence[str],
    index: str | None = None,
) -> Looked:
    """Looks at keys that differ once more, such that what is on its way is no difference: lives and the source are read
    first, and an event lands with what it is about. So where no event of an entity is under way after that, the sink
    has what the source had then, or something newer; unless something was lost."""
    found = Looked()
    for at in range(0, len(keys), FETCHED_AT_ONCE):
        await _look(found, store, projection, source, sink, keys[at : at + FETCHED_AT_ONCE], index)
    return found


async def _look(
    found: Looked,
    store: Store,
    projection: Projection,
    source: Source,
    sink: Rebuildable,
    keys: Sequence[str],
    index: str | None,
) -> None:
    lives = await lives_of(store, projection.name, keys)
    records = await _fetched(source, keys)
    rows = await store.sql.feature_rows("outbox", "under_way", projection.queue, json.dumps(list(keys)))
    moving = {str(row["scope"]) for row in rows}
    await sink.refresh(index)
    stored = {one.key: one for one in await sink.find(keys, index)}
    differing = [
        one
        for key in keys
        if key not in moving
        and (one := _difference(key, records.get(key), stored.get(key), lives.get(key, NONE))) is not None
    ]
    if differing:  # changed since: its event may have come and gone
        some = [one.key for one in differing]
        now, lives = await _fetched(source, some), await lives_of(store, projection.name, some)
        changed = {
            one.key
            for one in differing
            if _version(now.get(one.key)) != _version(one.record) or lives.get(one.key, NONE) != one.life
        }
        found.differences += [one for one in differing if one.key not in changed]
        moving |= changed
    found.moving += sorted(moving)


async def _fetched(source: Source, keys: Sequence[str]) -> dict[str, Record]:
    return {one.key: one for one in await source.fetch(keys)}


def _version(record: Record | None) -> int | None:
    return None if record is None else record.version


def _difference(key: str, record: Record | None, stored: Stored | None, life: Life) -> Difference | None:
    if stored is not None and stored.base is None:  # its sink does not tell lives apart
        stored = replace(stored, base=life.start)
    if record is None:
        return None if stored is None else Difference(key, Kind.EXTRA, None, stored, life)
    if stored is None:
        return Difference(key, Kind.MISSING, record, None, life)
    wanted = Stored(key, record.version, life.start)
    if not wanted.differs(stored):
        return None
    return Difference(key, Kind.STALE if stored.order < wanted.order else Kind.AHEAD, record, stored, life)
