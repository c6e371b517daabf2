"""Connections of a pool that nobody uses now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

Connection = Any  # asyncpg has no types
# How long one waits for what another is about to get, before it makes a connection beside it.
PATIENCE_S = 1.0
# How long whoever got a connection may keep it before the next one is made, at least: most have given it back by then.
# Ten times as long as it takes to connect: a server that is slow to answer has enough of us, and each new session has
# to compile and plan anew what the old ones know.
STEP_S, STEP_BY_CONNECT_TIME = 0.03, 10


class Idle:
    """The last one that came back is used first. With ``by_turns`` one connection is made at a time: after an outage
    everybody in the process wants one at once, and the first that is made serves most of them within milliseconds."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], *, by_turns: bool) -> None:
        self.connections: list[Connection] = []
        self._connect = connect
        self._by_turns = by_turns
        self._connecting = 0
        self._step = STEP_S
        self._waiting = 0
        self._change = asyncio.Event()

    async def take(self) -> Connection:
        """Returns an open connection: one that was given back, or a new one."""
        began = 0.0
        while (found := self._first_open()) is None:
            waited = time.monotonic() - began if began else 0.0
            enough = PATIENCE_S if self._connecting else self._step
            if waited >= enough or not (self._by_turns and (self._connecting or began)):
                return await self._make()
            began = began or time.monotonic()
            await self._change_within(min(max(enough - waited, 0.001), self._step))
        return found

    def give(self, connection: Connection) -> None:
        """Takes a connection back."""
        connection.idle_since = time.monotonic()
        self.connections.append(connection)
        self._changed()

    def _first_open(self) -> Connection | None:
        while self.connections:
            connection = self.connections.pop()
            if not connection.is_closed():
                return connection
        return None

    async def _make(self) -> Connection:
        self._connecting += 1
        began = time.monotonic()
        try:
            made = await self._connect()
            took = time.monotonic() - began
            self._step = min(max(STEP_S, STEP_BY_CONNECT_TIME * took), PATIENCE_S)
            return made
        except BaseException:
            self._changed()  # there is nothing to wait for
            raise
        finally:
            self._connecting -= 1

    async def _change_within(self, seconds: float) -> None:
        """Waits so long, or until one was given back or could not be made."""
        self._waiting += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._change.wait()
        finally:
            self._waiting -= 1

    def _changed(self) -> None:
        if self._waiting:
            self._change.set()
            self._change = asyncio.Event()
