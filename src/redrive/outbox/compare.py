"""Compares a source with an index, a page at a time: what the source has is looked up in the index by its keys, then
what the index has in the source. What differs is looked at again: a difference that lasts is one, and not an event on
its way."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from redrive.outbox.lives import NONE, Life, lives_of
from redrive.outbox.sink import Rebuildable, Stored
from redrive.outbox.source import Record, Source

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.outbox.projection import Projection

PAGE = 1000


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


@dataclass(slots=True, frozen=True)
class Compared:
    """A page that was compared: keys that seem to differ, how many documents were looked at, and the place behind them;
    None at the end."""

    differing: Sequence[str]
    documents: int
    next: str | None


@dataclass(slots=True)
class Looked:
    """Keys that were looked at again: those that differ, and those with events on their way."""

    differences: list[Difference] = field(default_factory=list)
    moving: list[str] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class Comparison:
    """Of one projection: its ``source``, the same without documents (``versions``), and an index of its sink; None: the
    live one."""

    store: Store
    projection: Projection
    source: Source
    versions: Source
    sink: Rebuildable
    index: str | None = None

    async def of_source(self, after: str | None) -> Compared:
        """Looks up the next entities of the source in the index."""
        page = await self.versions.page(after, PAGE)
        keys = [one.key for one in page.records]
        lives, stored = await lives_of(self.store, self.projection.name, keys), await self._stored(keys)
        pairs = [(one, stored.get(one.key), lives.get(one.key, NONE)) for one in page.records]
        differing = [one.key for one, found, life in pairs if _difference(one.key, one, found, life) is not None]
        return Compared(differing, len(keys), page.next)

    async def of_index(self, after: str | None) -> Compared:
        """Looks up the next documents of the index in the source; those that it has are compared by ``of_source``."""
        keys = list[str]()
        async for one in self.sink.scan(self.index, after or ""):
            keys.append(one.key)
            if len(keys) == PAGE:
                break
        there = {one.key for one in await self.versions.fetch(keys)} if keys else set()
        extra = [key for key in keys if key not in there]
        return Compared(extra, len(extra), keys[-1] if len(keys) == PAGE else None)

    async def again(self, keys: Sequence[str]) -> Looked:
        """Looks at keys that differ once more, such that what is on its way is no difference: lives and the source are
        read first, and an event lands with what it is about. So where no event of an entity is under way after that,
        the sink has what the source had then, or something newer; unless something was lost."""
        found = Looked()
        for at in range(0, len(keys), PAGE):
            await self._again(found, keys[at : at + PAGE])
        return found

    async def _again(self, found: Looked, keys: Sequence[str]) -> None:
        lives, records = await self._lives_and_records(keys)
        queue = self.projection.queue
        rows = await self.store.sql.feature_rows("outbox", "under_way", queue, json.dumps(list(keys)))
        moving = {str(row["scope"]) for row in rows}
        await self.sink.refresh(self.index)
        stored = await self._stored(keys)
        still = [key for key in keys if key not in moving]
        looked = [_difference(key, records.get(key), stored.get(key), lives.get(key, NONE)) for key in still]
        differing = [one for one in looked if one is not None]
        if differing:  # changed since: its event may have come and gone
            lives, records = await self._lives_and_records([one.key for one in differing])
            changed = {
                one.key
                for one in differing
                if _version(records.get(one.key)) != _version(one.record) or lives.get(one.key, NONE) != one.life
            }
            found.differences += [one for one in differing if one.key not in changed]
            moving |= changed
        found.moving += sorted(moving)

    async def _lives_and_records(self, keys: Sequence[str]) -> tuple[Mapping[str, Life], dict[str, Record]]:
        lives = await lives_of(self.store, self.projection.name, keys)
        return lives, {one.key: one for one in await self.source.fetch(keys)}

    async def _stored(self, keys: Sequence[str]) -> dict[str, Stored]:
        return {one.key: one for one in await self.sink.find(keys, self.index)}


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
    names = (*(kind.value for kind in Kind), "repaired", "left", "on_their_way")
    return ", ".join(f"{result[name]:,} {name.replace('_', ' ')}" for name in names if result.get(name))


def count_of_differences(result: dict[str, Any]) -> int:
    """Returns in how many documents an index still differs from its source, after what was repaired."""
    found = sum(int(result.get(kind.value) or 0) for kind in Kind)
    return max(found - int(result.get("repaired") or 0), 0) + int(result.get("left") or 0)
