"""Keeps one sink for each event loop, since connections belong to a loop."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

from redrive.outbox.sink import Sink


class LoopSinks:
    """The sinks of one projection, by event loop: made at first use, closed when the loop ends in order."""

    def __init__(self, make: Callable[[], Sink]) -> None:
        self._make = make
        self._sinks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[int, Sink, Any]] = (
            weakref.WeakKeyDictionary()
        )

    def get(self) -> Sink:
        """Returns the sink of the running event loop."""
        if (known := self.known()) is not None:
            return known
        sink = self._make()
        keeper = _keep(sink)
        self._sinks[asyncio.get_running_loop()] = (os.getpid(), sink, keeper)
        with suppress(StopIteration):  # it waits at its yield, known to the loop from here on
            keeper.__anext__().send(None)
        return sink

    def known(self) -> Sink | None:
        """Returns the sink of the running event loop, if it has one by now; a forked process makes its own."""
        found = self._sinks.get(asyncio.get_running_loop())
        return found[1] if found is not None and found[0] == os.getpid() else None

    async def close(self) -> None:
        """Closes the sink of the running event loop."""
        found = self._sinks.pop(asyncio.get_running_loop(), None)
        if found is not None and found[0] == os.getpid():
            await found[2].aclose()


async def _keep(sink: Sink) -> AsyncGenerator[None, None]:
    """Closes the sink at the end of the loop: open generators get their end first."""
    try:
        yield
    finally:
        with suppress(Exception):  # nobody waits for this
            await sink.close()
