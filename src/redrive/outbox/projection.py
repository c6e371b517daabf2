"""Projections: a name, a sink, and how events get there. The application declares them, or its configuration does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from redrive.errors import ChangedMeanwhile
from redrive.kernel.commit import Commit
from redrive.outbox.event import Event, kind_of, queue_of
from redrive.outbox.index_job import REBUILD, Phase, job_of
from redrive.outbox.loop_sinks import LoopSinks
from redrive.outbox.sink import Sink
from redrive.outbox.sink_watch import SinkWatch

if TYPE_CHECKING:
    from redrive.kernel.circuit import Circuit
    from redrive.kernel.ports.store import Store
    from redrive.outbox.request_size import RequestSize
    from redrive.outbox.settings import OutboxSettings


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
    _watch: SinkWatch = field(init=False, repr=False)
    _size: RequestSize | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._written, self._looked_at = LoopSinks(self.make), LoopSinks(self.make)
        self._watch = SinkWatch(self.sink_to_look_at)

    @property
    def kind(self) -> str:
        return kind_of(self.name)

    @property
    def queue(self) -> str:
        return queue_of(self.name)

    @property
    def watch(self) -> SinkWatch:
        """Whether its sink can be reached from here."""
        return self._watch

    def sink(self) -> Sink:
        """Returns the sink of the running event loop, to write to: from now on this process depends on it."""
        return self._written.get()

    def sink_in_use(self) -> Sink | None:
        """Returns the sink that the running event loop writes to, if it does by now."""
        return self._written.known()

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
            from redrive.outbox.request_size import RequestSize

            self._size = RequestSize(self.batch, settings.batch_bytes, settings.batch_seconds)
        return self._size

    async def close(self) -> None:
        """Closes the sinks of the running event loop."""
        await self._written.close()
        await self._looked_at.close()
