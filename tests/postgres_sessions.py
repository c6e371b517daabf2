"""Keeps sessions of the server for the next test: a new one reads the catalogs and plans every function again, which
takes longer than most tests of a store."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from redrive.stores.postgres.pool import Pool
from tests.databases import Databases

Kept = dict[tuple[Any, ...], list[Any]]


@asynccontextmanager
async def keep_sessions(databases: Databases) -> AsyncIterator[None]:
    """Until this ends, pools leave their idle connections to the next pool of the same database. For tests that ask a
    store through its port, and share one event loop."""
    kept: Kept = defaultdict(list)
    loop = asyncio.get_running_loop()
    connect, close = Pool._connect, Pool.close

    async def connect_or_take(self: Pool, brief: bool, **options: Any) -> Any:
        found = kept[self._dsn, brief, self.pooled] if not options else []
        while found:
            connection = found.pop()
            databases.kept.discard(connection.get_server_pid())
            if not connection.is_closed():
                self._made.add(connection)
                self._contact.set()
                return connection
        return await connect(self, brief, **options)

    async def leave(self: Pool) -> None:
        if asyncio.get_running_loop() is loop:
            idle = [one for one in self._idle.connections if not one.is_closed()]
            self._idle.connections.clear()
            kept[self._dsn, not self._silence_in_url, self.pooled] += idle
            databases.kept |= {one.get_server_pid() for one in idle}
        await close(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pool, "_connect", connect_or_take)
        patch.setattr(Pool, "close", leave)
        yield
    await asyncio.gather(*(one.close() for found in kept.values() for one in found))
    databases.kept.clear()
