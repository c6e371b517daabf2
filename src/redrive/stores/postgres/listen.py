"""Listens for hints from the database, with an echo that notices when they stop coming."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import md5
from typing import Any
from uuid import uuid4

import asyncpg

from redrive.errors import RedriveError
from redrive.kernel.ports.store import Wake
from redrive.stores.postgres.pool import Pool
from redrive.stores.postgres.scan_positions import ScanPositions

ECHO_EVERY_S = 5.0
ECHO_TIMEOUT_S = 5.0
LONGEST_RECONNECT_DELAY_S = 10.0


class Listener:
    """Keeps one connection that listens. Every few seconds it notifies itself: a connection that does not echo is
    replaced, so that a silent death costs at most ``ECHO_EVERY_S + ECHO_TIMEOUT_S`` seconds of polling."""

    def __init__(self, pool: Pool, remembered: ScanPositions) -> None:
        self._pool = pool
        self._remembered = remembered
        self._callbacks: list[Callable[[Wake], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._echo = asyncio.Event()
        self._echo_channel = f"redrive_echo_{uuid4().hex}"
        self._channels = {"redrive"}
        self._added = asyncio.Event()
        self.alive = False

    def add(self, on_wake: Callable[[Wake], None], queues: Iterable[str]) -> Callable[[], None]:
        self._callbacks.append(on_wake)
        new = {channel_of(queue) for queue in queues} - self._channels
        if new:
            self._channels |= new
            self.alive = False
            self._added.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="redrive-listen")
        return lambda: self._remove(on_wake)

    def _remove(self, on_wake: Callable[[Wake], None]) -> None:
        """Removes a listener. Its channels stay: another may listen there, and hints that nobody wants cost little."""
        if on_wake in self._callbacks:
            self._callbacks.remove(on_wake)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while not self._pool.pooled:
            delay = LONGEST_RECONNECT_DELAY_S
            try:
                await self._listen()
            except (RedriveError, OSError, TimeoutError) as error:
                if not isinstance(error.__cause__, asyncpg.TooManyConnectionsError):
                    delay = 0.2 + 0.8 * random.random()  # noqa: S311 (spreads a fleet's reconnects; no secret)
            except Exception as error:  # a driver error of any kind: the next connection may be better
                if isinstance(error, asyncio.CancelledError):
                    raise
            self.alive = False
            await self._pool.next_contact(delay)

    async def _listen(self) -> None:
        connection = await self._pool.connect()
        try:
            if self._pool.pooled:
                return
            await connection.add_listener(self._echo_channel, self._on_echo)
            heard = set[str]()
            while True:
                self._added.clear()
                if new := self._channels - heard:
                    for channel in new:
                        await connection.add_listener(channel, self._on_notify)
                    heard |= new
                    self.alive = self._channels == heard
                    # Whatever was announced while nobody listened is unknown: look everywhere.
                    self._remembered.rewind("*", 0)
                    self._send(Wake())
                self._echo.clear()
                await connection.execute("select pg_notify($1, '')", self._echo_channel, timeout=ECHO_TIMEOUT_S)
                async with asyncio.timeout(ECHO_TIMEOUT_S):
                    await self._echo.wait()
                with suppress(TimeoutError):
                    async with asyncio.timeout(ECHO_EVERY_S):
                        await self._added.wait()
        finally:
            connection.terminate()

    def _on_echo(self, *_: Any) -> None:
        self._echo.set()

    def _on_notify(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        match payload.split(" "):
            case ["ready", queue, position] if _is_position(position):
                self._remembered.rewind(queue, int(position))
                self._send(Wake(queue=queue))
            case ["look"]:
                self._send(Wake(queue="*"))
            case ["due", ms, queue] if _is_position(ms):
                self._send(Wake(queue=queue, due_in=int(ms) / 1000))
            case ["cancel", _worker]:
                self._send(Wake(cancel=True))

    def _send(self, wake: Wake) -> None:
        for callback in self._callbacks:
            callback(wake)


def _is_position(text: str) -> bool:
    """Returns whether a notification holds a position: whoever may connect may send anything."""
    return text.isascii() and text.isdigit() and len(text) <= 18


def channel_of(queue: str) -> str:
    """Returns the channel of a queue: channel names are short, and names of queues need not be. The same as in
    ``redrive.wake``."""
    return f"redrive_{md5(queue.encode(), usedforsecurity=False).hexdigest()}"
