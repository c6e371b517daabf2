"""Keeps one store for each event loop, and none for a loop that is gone.

Connections belong to the event loop they were made on. A loop ends in one of three ways:

- in order, as ``asyncio.run`` and all servers do it: asynchronous generators that are still open get their end first,
  and one of ours closes the store with it, while the loop still runs;
- closed without that: whoever needs a store next, on any loop, finds it closed and cuts its connections;
- forgotten without being closed: the loop owns its store, so that both are collected together.

A forked process lets go of the stores it inherits: their connections are the parent's."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redrive.kernel.ports.store import Store
from redrive.stores import capabilities_of, is_sqlite, make_store, shown_url
from redrive.stores.sqlite.url import parse

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature
    from redrive.kernel.ports.store import Store

_OWNED = "_redrive_stores"


@dataclass(slots=True, frozen=True)
class _Entry:
    store: Store
    keeper: AsyncGenerator[None, None]


class LoopStores:
    """The stores of an application. Safe to use from any thread with a running loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
        _everywhere.add(self)

    def get(self, make: Callable[[], Store]) -> Store:
        """Returns the store of the running loop, made if it has none."""
        loop = asyncio.get_running_loop()
        entry = _owned(loop).get(self)
        if entry is None:
            self.sweep()
            store = make()
            entry = _owned(loop)[self] = _Entry(store, _keep(store, self._forgetter(loop, store)))
            with self._lock:
                self._loops.add(loop)
            with suppress(StopIteration):  # it waits at its yield, known to the loop from here on
                entry.keeper.__anext__().send(None)
        return entry.store

    async def close(self) -> None:
        """Closes the store of the running loop, if it has one, and those of loops that are gone."""
        self.sweep()
        entry = _owned(asyncio.get_running_loop()).get(self)
        if entry is not None:
            await entry.keeper.aclose()

    def sweep(self) -> None:
        """Cuts the connections of loops that were closed without closing them."""
        with self._lock:
            closed = [loop for loop in self._loops if loop.is_closed()]
            for loop in closed:
                self._loops.discard(loop)
        for loop in closed:
            entry = _owned(loop).pop(self, None)
            if entry is not None:
                entry.store.abandon()

    def disinherit(self) -> None:
        """Forgets the parent's stores in a forked process, and lets nothing be done with them any more."""
        self._lock = threading.Lock()
        for loop in list(self._loops):
            entry = _owned(loop).pop(self, None)
            if entry is not None:
                entry.store.abandon(inherited=True)
                _inherited.append(entry)
        self._loops = weakref.WeakSet()

    def _forgetter(self, loop: asyncio.AbstractEventLoop, store: Store) -> Callable[[], None]:
        """Returns what is called when the store is about to be closed. It holds neither the loop nor this: they may go
        before it."""
        mine, its_loop = weakref.ref(self), weakref.ref(loop)

        def forget() -> None:
            found, where = mine(), its_loop()
            entry = None if found is None or where is None else _owned(where).get(found)
            if found is not None and where is not None and entry is not None and entry.store is store:
                _owned(where).pop(found, None)

        return forget


async def _keep(store: Store, forget: Callable[[], None]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        forget()
        with suppress(Exception):  # nobody waits for this, and the connections are gone either way
            await store.close()


def _owned(loop: asyncio.AbstractEventLoop) -> weakref.WeakKeyDictionary[LoopStores, _Entry]:
    """Returns what a loop holds for us, on the loop itself: a table of ours would keep the loops of its stores
    alive."""
    found: weakref.WeakKeyDictionary[LoopStores, _Entry] | None = getattr(loop, _OWNED, None)
    if found is None:
        found = weakref.WeakKeyDictionary()
        setattr(loop, _OWNED, found)
    return found


_everywhere: weakref.WeakSet[LoopStores] = weakref.WeakSet()
# Kept for good: collecting them would have the driver talk to a loop that does not run here.
_inherited: list[_Entry] = []


def _after_fork() -> None:
    for stores in list(_everywhere):
        stores.disinherit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# Holds the store of one connection for an application: made at first use, opened once for each event loop.


class StoreHolder:
    """One connection of an application, by its name. Network stores belong to an event loop; SQLite serves them all."""

    def __init__(
        self, name: str, url: str, features: Sequence[Feature] = (), check: Callable[[str], None] = lambda _: None
    ) -> None:
        """``check`` refuses a URL whose store must not be opened now."""
        self.name = name
        self.url = url
        self._check = check
        self._features = features
        self._shared: Store | None = None
        self._stores = LoopStores()
        self._opened: weakref.WeakSet[Any] = weakref.WeakSet()
        self._recent: tuple[weakref.ref[asyncio.AbstractEventLoop], weakref.ref[Store]] | None = None

    @property
    def shown_url(self) -> str:
        """Where it is, without its password."""
        return shown_url(self.url)

    @property
    def file(self) -> Path | None:
        """The file that it is; None of a store that is none."""
        if not is_sqlite(self.url):
            return None
        found = parse(self.url)
        return None if found.memory else Path(found.path)

    def recent(self) -> Store | None:
        """Returns the store of the running loop if that is the loop of last time. Enqueueing comes by here for each
        task, and nearly always it is."""
        recent = self._recent  # read once: another loop's thread may change it at any moment
        if recent is None or recent[0]() is not asyncio.get_running_loop():
            return None
        return recent[1]()

    async def store(self) -> Store:
        """Returns the store of the running event loop, opened."""
        return self.recent() or await self._open()

    async def _open(self) -> Store:
        store = self.bound()
        if store not in self._opened:
            await store.open()
            self._opened.add(store)
        if self.bound() is store:  # else it was closed meanwhile
            self._recent = (weakref.ref(asyncio.get_running_loop()), weakref.ref(store))
        return store

    def bound(self) -> Store:
        """Returns the same store, perhaps not opened yet: a worker opens it itself, and waits for it if it has to."""
        self._check(self.url)
        if capabilities_of(self.url).any_loop:
            if self._shared is None:
                self._shared = self.make()
            return self._shared
        return self._stores.get(self.make)

    def make(self) -> Store:
        return make_store(self.url, self._features)

    async def migrate(self) -> list[str]:
        """Brings the schema up to date; returns the steps that were taken."""
        self._check(self.url)
        store = self.make()
        try:
            return await store.migrations.up()
        finally:
            await store.close()

    async def close(self) -> None:
        self._recent = None
        await self._stores.close()
        shared, self._shared = self._shared, None
        if shared is not None:
            await shared.close()
            self._opened.discard(shared)
        self._recent = None
