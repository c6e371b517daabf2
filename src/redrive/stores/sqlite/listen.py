"""Sends hints to listeners, each on its own event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

from redrive.kernel.ports.store import Wake

OnWake = Callable[[Wake], None]


class Listeners:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[tuple[asyncio.AbstractEventLoop, OnWake], ...] = ()

    @property
    def listening(self) -> bool:
        return bool(self._listeners)

    def add(self, on_wake: OnWake) -> Callable[[], None]:
        """Adds a listener; returns what removes it."""
        added = (asyncio.get_running_loop(), on_wake)
        with self._lock:
            self._listeners = (*self._listeners, added)
        return lambda: self._remove(added)

    def _remove(self, added: tuple[asyncio.AbstractEventLoop, OnWake]) -> None:
        with self._lock:
            self._listeners = tuple(one for one in self._listeners if one is not added)

    def clear(self) -> None:
        with self._lock:
            self._listeners = ()

    def send(self, wakes: Sequence[Wake]) -> None:
        """Sends hints, from any thread. A loop that has gone takes its listeners with it."""
        for loop, on_wake in self._listeners:
            try:
                loop.call_soon_threadsafe(_tell, on_wake, wakes)
            except RuntimeError:
                with self._lock:
                    self._listeners = tuple(one for one in self._listeners if one[0] is not loop)


def _tell(on_wake: OnWake, wakes: Sequence[Wake]) -> None:
    for wake in wakes:
        on_wake(wake)
