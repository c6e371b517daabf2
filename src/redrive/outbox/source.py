"""Sources: where a projection's entities are kept. A rebuild and a comparison read them; live events need none."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from redrive.outbox.event import key_of
from redrive.outbox.sink import Digest, Stored

MODULUS = 2**64
PAGE = 1000
Range = tuple[str, str | None]  # keys behind one, up to and with another; None: to the end
WHOLE: Sequence[Range] = (("", None),)


def number_of(key: str, version: int, base: int = 0) -> int:
    """Returns the number of one document."""
    text = f"{key}\n{version}\n{base}" if base else f"{key}\n{version}"
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big")


def digests_of(documents: Iterable[tuple[str, int] | tuple[str, int, int]], bounds: Sequence[str] = ()) -> list[Digest]:
    """Returns the digests of documents, of which each is a key, a version and perhaps a base, by the ranges that bounds
    make: up to the first, between two of them, behind the last."""
    ends = [bound.encode() for bound in bounds]
    found = [(0, 0)] * (len(ends) + 1)
    for key, *numbers in documents:
        at = bisect_left(ends, key.encode())
        count, total = found[at]
        found[at] = count + 1, (total + number_of(key, *numbers)) % MODULUS
    return [as_digest(*one) for one in found]


def as_digest(count: int, total: int) -> Digest:
    """Returns a digest of a count and a sum, as a database computes them."""
    return Digest(count, f"{total % MODULUS:016x}")


def sum_of(parts: Iterable[Digest]) -> Digest:
    """Returns the digest of documents whose parts these are the digests of."""
    known = list(parts)
    return as_digest(sum(one.count for one in known), sum(int(one.digest, 16) for one in known))


def thresholds(bounds: Iterable[str]) -> list[str]:
    """Returns keys for ``width_bucket`` of PostgreSQL, which counts a key that is equal to a bound to the range behind
    it, where a range of ours ends with its bound: nothing else lies between a text and the same with this character."""
    return [f"{bound}\x01" for bound in bounds]


def all_ranges(found: Iterable[tuple[int, int, int]], bounds: int) -> list[Digest]:
    """Returns the digest of each range of so many bounds, of rows (number of the range, count, sum): those without
    documents have none."""
    rows = {number: as_digest(count, total) for number, count, total in found}
    return [rows.get(number) or as_digest(0, 0) for number in range(bounds + 1)]


@dataclass(slots=True, frozen=True)
class Record:
    """An entity as its source has it now."""

    entity_type: str
    entity_id: str
    version: int
    payload: Any
    routing: str | None = None

    @property
    def key(self) -> str:
        return key_of(self.entity_type, self.entity_id)


@dataclass(slots=True, frozen=True)
class Page:
    """Some entities of a source, and the place behind them; None where there are no more."""

    records: Sequence[Record]
    next: str | None


@runtime_checkable
class Source(Protocol):
    """What rebuild and verify need of a source."""

    async def page(self, after: str | None, limit: int) -> Page:
        """Returns the entities behind a place that an earlier page returned (None: from the beginning), in an order of
        the source's own. An entity that is there all the time is in some page, whatever happens to others."""
        ...

    async def fetch(self, keys: Sequence[str]) -> Sequence[Record]:
        """Returns those of these entities that are there now."""
        ...

    def versions(self, ranges: Sequence[Range] = WHOLE) -> AsyncIterator[Stored]:
        """Yields key and version of the entities of these ranges, in the byte order of their keys."""
        ...

    async def digests(self, bounds: Sequence[str]) -> Sequence[Digest] | None:
        """Returns the digests of the ranges that keys make (up to the first, between two of them, behind the last)
        where the source can compute them; None: read it."""
        ...


@runtime_checkable
class Keyed(Protocol):
    """What an application writes by hand, for ``@app.outbox.source(…)``: the least that makes a source."""

    async def scan(self, after: str, limit: int) -> Sequence[Record]:
        """Returns entities whose key (``type:id``) comes behind this one in byte order, the first so many, in that
        order."""
        ...

    async def fetch(self, keys: Sequence[str]) -> Sequence[Record]:
        """Returns those of these entities that are there now."""
        ...


class KeyedSource:
    """A source of what reads entities in the order of their keys."""

    def __init__(self, keyed: Keyed) -> None:
        self._keyed = keyed

    async def page(self, after: str | None, limit: int) -> Page:
        records = await self._keyed.scan(after or "", limit)
        return Page(records, records[-1].key if records else None)

    async def fetch(self, keys: Sequence[str]) -> Sequence[Record]:
        return await self._keyed.fetch(keys)

    async def versions(self, ranges: Sequence[Range] = WHOLE) -> AsyncIterator[Stored]:
        for after, before in ranges:
            async for one in self._between(after, before):
                yield one

    async def _between(self, after: str, before: str | None) -> AsyncIterator[Stored]:
        end = None if before is None else before.encode()
        while records := await self._keyed.scan(after, PAGE):
            for one in records:
                if end is not None and one.key.encode() > end:
                    return
                yield Stored(one.key, one.version)
            after = records[-1].key

    async def digests(self, bounds: Sequence[str]) -> Sequence[Digest] | None:
        return None


class Together:
    """Several sources of one projection, of different entity types, as one."""

    def __init__(self, sources: dict[str, Source]) -> None:
        # Keys of a type stand together: they begin with it and a colon.
        self._sources = dict(sorted(sources.items(), key=lambda one: f"{one[0]}:".encode()))

    async def page(self, after: str | None, limit: int) -> Page:
        types = list(self._sources)
        at, _, place = ("0", "", "") if after is None else after.partition(" ")
        number = int(at)
        found = await self._sources[types[number]].page(place or None, limit)
        if found.next is not None:
            return Page(found.records, f"{number} {found.next}")
        return Page(found.records, f"{number + 1}" if number + 1 < len(types) else None)

    async def fetch(self, keys: Sequence[str]) -> Sequence[Record]:
        found: list[Record] = []
        for entity_type, source in self._sources.items():
            own = [key for key in keys if key.startswith(f"{entity_type}:")]
            found += await source.fetch(own) if own else ()
        return found

    async def versions(self, ranges: Sequence[Range] = WHOLE) -> AsyncIterator[Stored]:
        for source in self._sources.values():
            async for one in source.versions(ranges):
                yield one

    async def count(self) -> int:
        """Returns how many entities there are, where all of them can say; else 0."""
        found = [await count() for one in self._sources.values() if (count := getattr(one, "count", None))]
        return sum(found) if len(found) == len(self._sources) else 0

    async def digests(self, bounds: Sequence[str]) -> Sequence[Digest] | None:

        parts = [await source.digests(bounds) for source in self._sources.values()]
        known = [one for one in parts if one is not None]
        return [sum_of(each) for each in zip(*known, strict=True)] if len(known) == len(parts) else None


def source_of(given: Any) -> Source:
    """Returns a source: as it is, or made of what scans in the order of keys. A class is called first."""
    made = given() if isinstance(given, type) else given
    if isinstance(made, Source):
        return made
    if isinstance(made, Keyed):
        return KeyedSource(made)
    from redrive.errors import ConfigError

    raise ConfigError(
        f"{type(made).__name__} is no source of a projection",
        hint="it has async def scan(after, limit) and fetch(keys), which return Records",
    )
