"""Sources: where a projection's entities are kept. A rebuild and a comparison read them; live events need none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from redrive.outbox.event import key_of


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
    """What rebuild and verify need of a source; ``count``, which says how many entities there are, may be there."""

    async def page(self, after: str | None, limit: int) -> Page:
        """Returns the entities behind a place that an earlier page returned (None: from the beginning), in an order of
        the source's own. An entity that is there all the time is in some page, whatever happens to others."""
        ...

    async def fetch(self, keys: Sequence[str]) -> Sequence[Record]:
        """Returns those of these entities that are there now."""
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

    async def count(self) -> int:
        """Returns how many entities there are, where all of them can say; else 0."""
        found = [await count() for one in self._sources.values() if (count := getattr(one, "count", None))]
        return sum(found) if len(found) == len(self._sources) else 0


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
