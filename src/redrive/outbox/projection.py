"""Projections: a name, a sink, and how events get there. The application declares them, or its configuration does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from redrive.errors import ChangedMeanwhile, RedriveError
from redrive.kernel.commit import Commit
from redrive.outbox.event import Event, kind_of, queue_of
from redrive.outbox.index_job import REBUILD, Phase, job_of
from redrive.outbox.sink import PerLoop, Sink

if TYPE_CHECKING:
    from redrive.kernel.circuit import Circuit
    from redrive.kernel.ports.store import Store
    from redrive.outbox.settings import OutboxSettings

GROWTH = 1.5
QUICK = 0.5  # a request that takes less than this share of the longest time may be larger next time
FRESH_S = 5.0  # however many look, it is asked this often
LONGEST_S = 5.0
PATIENCE_S = 0.5  # a page is not kept waiting by a sink that does not answer


class LoopSinks:
    """The sinks of one projection, by event loop: made at first use, closed when the loop ends in order."""

    def __init__(self, make: Callable[[], Sink]) -> None:
        self._open = PerLoop(lambda: _OpenSink(make()))

    def get(self) -> Sink:
        """Returns the sink of the running event loop."""
        return self._open.get().sink

    def known(self) -> Sink | None:
        """Returns the sink of the running event loop, if it has one by now."""
        found = self._open.known()
        return None if found is None else found.sink


class _OpenSink:
    """A sink, and a generator that closes it at the end of the loop: open generators get their end first."""

    def __init__(self, sink: Sink) -> None:
        self.sink, self.end = sink, self._until_end()
        with suppress(StopIteration):  # it waits at its yield, known to the loop from here on
            self.end.__anext__().send(None)

    async def _until_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            with suppress(Exception):  # nobody waits for this
                await self.sink.close()


@dataclass(slots=True, frozen=True)
class Reached:
    """Whether a sink answered; None while nobody knows. ``detail`` says what is wrong, without what an error quotes:
    that may be a password."""

    ok: bool | None = None
    detail: str | None = None

    @property
    def word(self) -> str:
        return {None: "unknown", True: "reachable", False: "not reachable"}[self.ok]


class SinkWatch:
    """Asks a sink now and then; in between the last answer is told."""

    def __init__(self, sink: Callable[[], Sink]) -> None:
        self._sink = sink
        self._last = Reached()
        self._at = float("-inf")
        self.reached_at: datetime | None = None  # when it last was well
        self._asking: asyncio.Task[None] | None = None

    async def look(self, patience: float = PATIENCE_S) -> Reached:
        """Returns whether the sink can be reached, as of a few seconds ago. One that does not answer at once is told of
        by the next look."""
        if time.monotonic() - self._at >= FRESH_S:
            await asyncio.wait([self._ask()], timeout=patience)
        return self._last

    def _ask(self) -> asyncio.Task[None]:
        loop = asyncio.get_running_loop()
        if self._asking is None or self._asking.done() or self._asking.get_loop() is not loop:
            self._asking = loop.create_task(self._check())
        return self._asking

    async def _check(self) -> None:
        try:
            async with asyncio.timeout(LONGEST_S):
                await self._sink().check()
            self._last, self.reached_at = Reached(True), datetime.now(UTC)
        except TimeoutError:
            self._last = Reached(False, f"no answer within {LONGEST_S:.0f} s")
        except RedriveError as error:  # our own words: a client that is not installed, for instance
            self._last = Reached(False, error.message)
        except Exception as error:  # whatever it is: nothing can be written there now
            self._last = Reached(False, type(error).__name__)
        self._at = time.monotonic()


@dataclass(slots=True)
class RequestSize:
    """The size of requests to one sink. It shrinks when one was too large or took too long, and grows back while they
    are quick, but not to what was too large: the sink is not asked again, it has said so."""

    most_events: int
    most_bytes: int
    longest_s: float
    events: int = field(init=False)
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.events, self.bytes = self.most_events, self.most_bytes

    def took(self, events: int, seconds: float) -> None:
        """Counts a request that got through."""
        if seconds > self.longest_s:
            self.events = max(1, min(self.events, events) // 2)
        elif seconds < self.longest_s * QUICK:
            self.events = min(self.most_events, int(self.events * GROWTH) + 1)
            self.bytes = min(self.most_bytes, int(self.bytes * GROWTH))

    def was_too_large(self, events: int, size: int) -> None:
        """Counts a request that was refused for its size: all others have at most half of it."""
        self.events = max(1, min(self.events, events) // 2)
        self.bytes = self.most_bytes = max(1, min(self.bytes, size) // 2)

    def cut(self, sizes: Sequence[int]) -> int:
        """Returns how many of the next events, of so many bytes each, go into one request: one at least."""
        total = 0
        for n, size in enumerate(sizes[: self.events]):
            total += size
            if total > self.bytes and n:
                return n
        return min(self.events, len(sizes))


@dataclass(slots=True)
class Projection:
    """One projection of an application. ``make`` returns its sink: one for each event loop."""

    name: str
    make: Callable[[], Sink]
    batch: int
    circuit: Circuit | None = None
    source: Any = None  # how a rebuild and a comparison read the source
    document: Callable[[Event], Any] | None = None  # makes the document of an event, where its payload is not it
    shown: str = ""  # its sink in words, without a password
    built_in: bool = False  # it is there because nobody declared one
    # Refuses to be served where its sink's client is not installed.
    check: Callable[[], None] = lambda: None
    served: bool = False  # a worker of this process has its queue, and depends on its sink
    alone: bool = False  # that worker has nothing but projections
    projected_at: datetime | None = None  # when events last arrived in its sink, by this process
    _written: LoopSinks = field(init=False, repr=False)
    _looked_at: LoopSinks = field(init=False, repr=False)
    watch: SinkWatch = field(init=False, repr=False)  # whether its sink can be reached from here
    _size: RequestSize | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._written, self._looked_at = LoopSinks(self.make), LoopSinks(self.make)
        self.watch = SinkWatch(self.sink_to_look_at)

    @property
    def kind(self) -> str:
        return kind_of(self.name)

    @property
    def queue(self) -> str:
        return queue_of(self.name)

    def sink(self) -> Sink:
        """Returns the sink of the running event loop, to write to: from now on this process depends on it."""
        return self._written.get()

    def sink_to_look_at(self) -> Sink:
        """Returns a sink to search and to ask how it is. A process that only looks does not depend on it: one that
        serves the console is ready while a sink is down, when it is needed most."""
        return self._written.known() or self._looked_at.get()

    async def indexes(self, store: Store) -> Sequence[str | None]:
        """Returns where events go: the live index, and one that a rebuild fills. Asked after events are claimed, and
        before they are written: a rebuild waits for what was claimed before it began."""
        extra = (await job_of(store, REBUILD, self.name)).extra_index
        return (None,) if extra is None else (None, extra)

    async def given_up(self, store: Store, index: str) -> bool:
        """Returns whether the index of a rebuild was dropped: what could not be written there is no loss."""
        return (await job_of(store, REBUILD, self.name)).given_up(index)

    async def refused(self, store: Store, index: str, found: Mapping[str, str]) -> bool:
        """Tells a rebuild which documents its index does not take, and why: it will stop, unless so many are allowed.
        Returns False where that is too late: the index becomes the live one, or is it."""
        while True:
            job = await job_of(store, REBUILD, self.name)
            if job.given_up(index):
                return True
            if job.index != index or job.phase is not Phase.FILLING:
                return False
            with suppress(ChangedMeanwhile):  # by another relay, or by who drives it
                await store.apply(Commit(puts=[job.refusing(found).put()]))
                return True

    def arrived(self) -> None:
        """Notes that its sink has taken events just now."""
        self.projected_at = datetime.now(UTC)

    def request_size(self, settings: OutboxSettings) -> RequestSize:
        """Returns how large requests to its sink are: one for all of this process, who remember what was refused."""
        if self._size is None:
            self._size = RequestSize(self.batch, settings.batch_bytes, settings.batch_seconds)
        return self._size
