"""The protocols of sinks, where a projection writes to, and what those who write one need. Adding one is one file in
``sinks/``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from redrive.errors import RedriveError
from redrive.outbox.event import Event
from redrive.outbox.verdict import DETERMINISTIC, Failed, Verdict

T = TypeVar("T")


class TooLarge(Exception):
    """The sink refuses a write for its size (413). The relay halves it and tries again; one event that is too large by
    itself fails."""


class NoSuchIndex(RedriveError):
    """An index that is to become the live one is not there."""

    code = "OUTBOX_NO_SUCH_INDEX"

    def __init__(self, index: str) -> None:
        super().__init__(
            f"there is no index {index} to make the live one", hint="somebody has removed it; rebuild anew"
        )


@dataclass(slots=True, frozen=True, order=True)
class Stored:
    """A document that a sink has, or had: its key and version, and the version's ``base`` (see ``Event``); None: the
    sink does not keep it, and lives of its keys are not told apart."""

    key: str
    version: int
    base: int | None = field(default=None, compare=False)

    @property
    def order(self) -> int:
        return (self.base or 0) + self.version

    def differs(self, other: Stored) -> bool:
        """Returns whether it is another version than this one of the same key, or one of another life."""
        known = self.base is not None and other.base is not None
        return self.version != other.version or (known and self.base != other.base)


@dataclass(slots=True, frozen=True)
class Hit:
    """A document that was found by a search."""

    key: str
    score: float
    document: Any


class Sink(Protocol):
    """What the relay needs. A sink belongs to one event loop, and its calls may overlap."""

    # False: it forgets the version of what was deleted, so the relay keeps tombstones (Elasticsearch, OpenSearch).
    remembers_deletes: bool
    # False: it does not compare versions itself; whoever reads it gets version and op, and has to (HTTP, streams).
    compares_versions: bool

    async def write(self, events: Sequence[Event], index: str | None = None) -> Sequence[Verdict]:
        """Writes events of distinct keys; returns one verdict for each, in their order. ``index``: another than the
        live one, which a rebuild fills. Raises only for what failed as a whole (connect, timeout, TooLarge)."""
        ...

    async def check(self) -> None:
        """Raises if the sink cannot be reached, for /readyz."""
        ...

    async def close(self) -> None:
        """Closes connections; the sink is not used afterwards."""
        ...


@runtime_checkable
class Rebuildable(Sink, Protocol):
    """What rebuild and verify need besides. HTTP and streams do not have it."""

    async def create(self, index: str) -> None:
        """Makes a new, empty index; nothing happens if it is there."""
        ...

    async def refresh(self, index: str | None = None) -> None:
        """Makes what was written visible to ``scan`` and searches."""
        ...

    def scan(self, index: str | None = None, after: str = "") -> AsyncIterator[Stored]:
        """Yields the documents behind a key, in the byte order of their keys, in constant memory; deleted ones are left
        out."""
        ...

    async def find(self, keys: Sequence[str], index: str | None = None) -> Sequence[Stored]:
        """Returns those of these documents that an index has."""
        ...

    async def swap(self, index: str) -> None:
        """Makes an index the live one, and drops the old one; nothing happens if it is live. Raises NoSuchIndex
        where there is none: whoever comes late must not make an empty one live."""
        ...

    async def drop(self, index: str) -> None:
        """Removes an index that is not the live one; nothing happens if there is none."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """A sink that remembers deletes (``remembers_deletes``), and can tell them to its next index."""

    async def deleted(self, after: str, limit: int) -> Sequence[Stored]:
        """Returns deleted documents of the live index behind a key, in the order of their keys."""
        ...

    async def deletions(self, keys: Sequence[str]) -> Sequence[Stored]:
        """Returns those of these documents that the live index remembers as deleted."""
        ...


@runtime_checkable
class Identified(Protocol):
    """A sink whose index can be told from another in its place: one that was lost, and made anew, is not quiet."""

    async def identity(self) -> str | None:
        """Returns what the live index is known by, for as long as it is the same; empty where there is none, None where
        that cannot be said from here."""
        ...


@runtime_checkable
class Searchable(Protocol):
    """A sink that can be searched by ``redrive outbox search``."""

    async def search(self, text: str, limit: int = 10) -> list[Hit]:
        """Returns the documents that fit best, the best first."""
        ...


@runtime_checkable
class Pruned(Protocol):
    """A sink that keeps versions of what was deleted, and does not have to for ever."""

    async def prune(self, seconds: float, limit: int) -> int:
        """Forgets those that were deleted longer ago than this, so many at once; returns how many."""
        ...


class PerLoop(Generic[T]):
    """One of something for each event loop, since connections belong to one; a forked process has its own."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[tuple[int, asyncio.AbstractEventLoop], T] = {}

    def get(self) -> T:
        """Returns the one of the running loop."""
        here = (os.getpid(), asyncio.get_running_loop())
        if here not in self._made:
            self._made = {place: one for place, one in self._made.items() if not place[1].is_closed()}
            self._made[here] = self._make()
        return self._made[here]

    def known(self) -> T | None:
        """Returns the one of the running loop, if it has one by now."""
        return self._made.get((os.getpid(), asyncio.get_running_loop()))

    def take(self) -> T | None:
        """Returns the one of the running loop to be closed, if it has one."""
        return self._made.pop((os.getpid(), asyncio.get_running_loop()), None)


class Unfit(Exception):
    """Something in these events was refused. ``reason`` is kept as ``error_reason`` of the one that it is."""

    def __init__(self, message: str, reason: str = DETERMINISTIC) -> None:
        super().__init__(message)
        self.reason = reason


async def find_refused(
    events: Sequence[T], send: Callable[[Sequence[T]], Awaitable[Sequence[Verdict]]]
) -> list[Verdict]:
    """Returns the verdicts of ``send``; where it raises Unfit, of both halves, until the culprit is alone."""
    try:
        return list(await send(events))
    except Unfit as error:
        if len(events) == 1:
            return [Failed(error.reason, str(error))]
    middle = len(events) // 2
    return [*await find_refused(events[:middle], send), *await find_refused(events[middle:], send)]
