"""Holds the store of one connection for an application: made at first use, opened once for each event loop."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redrive.stores import capabilities_of, is_sqlite, make_store, shown_url
from redrive.stores.loops import LoopStores
from redrive.stores.sqlite.url import parse

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature
    from redrive.kernel.ports.store import Store


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
