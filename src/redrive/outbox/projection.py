"""Projections: a name, a sink, and how events get there. The application declares them, or its configuration does."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redrive.outbox.event import Event, kind_of, queue_of
from redrive.outbox.sink import Sink

if TYPE_CHECKING:
    from redrive.kernel.circuit import Circuit
    from redrive.kernel.ports.store import Store


@dataclass(slots=True)
class Projection:
    """One projection of an application. ``make`` returns its sink: one for each event loop, since connections belong
    to a loop."""

    name: str
    make: Callable[[], Sink]
    batch: int
    circuit: Circuit | None = None
    source: Any = None  # how a rebuild and a comparison read the source
    document: Callable[[Event], Any] | None = None  # makes the document of an event, where its payload is not it
    shown: str = ""  # its sink in words, without a password
    _sinks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[int, Sink, Any]] = field(
        default_factory=weakref.WeakKeyDictionary, repr=False
    )

    @property
    def kind(self) -> str:
        return kind_of(self.name)

    @property
    def queue(self) -> str:
        return queue_of(self.name)

    def sink(self) -> Sink:
        """Returns the sink of the running event loop, made at first use, and closed when the loop ends in order."""
        loop = asyncio.get_running_loop()
        known = self._sinks.get(loop)
        if known is not None and known[0] == os.getpid():  # a forked process makes its own
            return known[1]
        sink = self.make()
        keeper = _keep(sink)
        self._sinks[loop] = (os.getpid(), sink, keeper)
        with suppress(StopIteration):  # it waits at its yield, known to the loop from here on
            keeper.__anext__().send(None)
        return sink

    def sink_in_use(self) -> Sink | None:
        """Returns the sink of the running event loop, if it has one by now."""
        known = self._sinks.get(asyncio.get_running_loop())
        return known[1] if known is not None and known[0] == os.getpid() else None

    async def indexes(self, store: Store) -> Sequence[str | None]:
        """Returns where events go: the live index, and one that a rebuild fills."""
        return (None,)

    async def close(self) -> None:
        """Closes the sink of the running event loop."""
        known = self._sinks.pop(asyncio.get_running_loop(), None)
        if known is not None and known[0] == os.getpid():
            await known[2].aclose()


async def _keep(sink: Sink) -> AsyncGenerator[None, None]:
    """Closes the sink at the end of the loop: open generators get their end first."""
    try:
        yield
    finally:
        with suppress(Exception):  # nobody waits for this
            await sink.close()
