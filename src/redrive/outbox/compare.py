"""Compares keys of a source and of an index, which both come in the same order, and says what differs; a difference
that lasts is one, and not an event on its way."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from redrive.outbox.lives import NONE, Life, later_lives, lives_of
from redrive.outbox.sink import Rebuildable, Stored
from redrive.outbox.source import WHOLE, Range, Record, Source

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.outbox.projection import Projection

LIVES_AT_ONCE = 1000
FETCHED_AT_ONCE = 500


@dataclass(slots=True)
class Merged:
    """What was compared at once: keys that differ, how many were looked at, and the last of them. ``end``: there are no
    more in the range."""

    differing: list[str] = field(default_factory=list)
    keys: int = 0
    last: str = ""
    end: bool = False


async def merge_keys(
    source: AsyncIterator[Stored], sink: AsyncIterator[Stored], most_keys: int, most_differing: int
) -> Merged:
    """Merges documents of both sides, each in the byte order of its keys, until there are enough."""
    found = Merged()
    ours, theirs = await anext(source, None), await anext(sink, None)
    while ours is not None or theirs is not None:
        if found.keys >= most_keys or len(found.differing) >= most_differing:
            return found
        left, right = _first(ours, theirs)
        found.keys, found.last = found.keys + 1, (left or right or Stored("", 0)).key
        if left is None or right is None or left.differs(right):
            found.differing.append(found.last)
        ours = ours if left is None else await anext(source, None)
        theirs = theirs if right is None else await anext(sink, None)
    found.end = True
    return found


async def with_bases(store: Store, projection: str, documents: AsyncIterator[Stored]) -> AsyncIterator[Stored]:
    """Yields the documents of a source with the bases that they have in an index."""
    try:
        later = await later_lives(store, projection, WHOLE)
        while some := await _take(documents, LIVES_AT_ONCE):
            lives = await lives_of(store, projection, [one.key for one in some]) if later else {}
            for one in some:
                yield Stored(one.key, one.version, lives.get(one.key, NONE).start)
    finally:
        await close_all(documents)


async def _take(documents: AsyncIterator[Stored], most: int) -> list[Stored]:
    found = list[Stored]()
    while len(found) < most and (one := await anext(documents, None)) is not None:
        found.append(one)
    return found


def behind(place: str, ranges: Sequence[Range]) -> list[Range]:
    """Returns what is left of ranges, which are in their order, behind a key."""
    key = place.encode()
    left = [one for one in ranges if one[1] is None or one[1].encode() > key]
    return [(place, left[0][1]), *left[1:]] if left and left[0][0].encode() < key else left


async def scan_ranges(sink: Rebuildable, ranges: Sequence[Range]) -> AsyncIterator[Stored]:
    """Yields the documents of these ranges, in their order."""
    for after, before in ranges:
        async for one in sink.scan(None, after, before):
            yield one


async def close_all(*iterators: AsyncIterator[Stored]) -> None:
    """Ends what was not read to its end."""
    for one in iterators:
        if isinstance(one, AsyncGenerator):
            await one.aclose()


def _first(ours: Stored | None, theirs: Stored | None) -> tuple[Stored | None, Stored | None]:
    """Returns the documents of the next key: of both sides, or of the one that has it."""
    if ours is None or theirs is None or ours.key == theirs.key:
        return ours, theirs
    return (ours, None) if ours.key.encode() < theirs.key.encode() else (None, theirs)


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


def result_words(result: dict[str, Any]) -> str:
    """Returns what a comparison has found, in words; empty: nothing."""
    words = [f"{result[kind.value]:,} {kind.value}" for kind in Kind if result.get(kind.value)]
    more = ("repaired", "left", "on_their_way")
    words += [f"{result[name]:,} {name.replace('_', ' ')}" for name in more if result.get(name)]
    return ", ".join(words)


def count_of_differences(result: dict[str, Any]) -> int:
    """Returns in how many documents an index still differs from its source, after what was repaired."""
    found = sum(int(result.get(kind.value) or 0) for kind in Kind)
    return max(found - int(result.get("repaired") or 0), 0) + int(result.get("left") or 0)
