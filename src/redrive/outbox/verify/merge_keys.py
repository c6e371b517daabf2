"""Merges the keys of a source with those of a sink, by lives and versions, in the order of keys, in constant memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redrive.outbox.relay.lives import NONE, later_lives, lives_of
from redrive.outbox.sink import Rebuildable, Stored
from redrive.outbox.source import WHOLE, Range

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store

LIVES_AT_ONCE = 1000


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
