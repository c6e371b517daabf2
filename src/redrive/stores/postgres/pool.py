"""A small pool: connections are made when needed, thrown away at the first doubt, and never reset between uses.

asyncpg's own pool sends a reset after each use, a round trip the hot loop does not need: all statements here are
functions that carry their own settings."""

from __future__ import annotations

import asyncio
import socket
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

import asyncpg

from redrive.errors import StoreError, StoreUnavailable
from redrive.kernel.series import Meter
from redrive.stores.metered import metered
from redrive.stores.postgres.connection import (
    LONGEST_SILENCE,
    SILENCE_SETTING,
    BriefConnection,
    StoreConnection,
    bring_to_the_ends,
)
from redrive.stores.postgres.errors import is_connect_rejection_by_pooler, translate
from redrive.stores.postgres.url import parse
from redrive.stores.sql import statements

# Connections of a pool that nobody uses now.

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


# Closes connections whose event loop does not run any more.


def close_without_loop(connection: Any, *, inherited: bool = False) -> None:
    """Closes an asyncpg connection's socket by itself: everything else of it would ask its event loop.

    ``inherited``: it is another process's. Only the descriptor is closed; a word on the wire would be heard by the
    server, and a word to the selector by the parent, which shares it.
    """
    connection._aborted = True  # the driver takes it for closed from here on
    transport = getattr(connection, "_transport", None)
    if transport is None:
        return
    # With TLS there is a transport below the transport. Other loops than asyncio's have none of this; uvloop closes its
    # sockets when it is closed.
    below: Any = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    for layer in (transport, below):
        wire = getattr(layer, "_sock", None)
        if isinstance(wire, socket.socket):
            if not inherited:
                with suppress(OSError):
                    wire.shutdown(socket.SHUT_RDWR)  # closing says nothing as long as another process has it, too
            wire.close()
            layer._sock = None


CONNECT_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 20.0
# Movements of money want the same rows, one after the other: while one has them, the next may get ready. More would
# wait at the server, where a process that is stopped gets the rows with each of them in turn, and keeps them for 5 s.
POSTING_AT_ONCE = 2
LEND_TIMEOUT_S = 30.0
RESET_TIMEOUT_S = 5.0
UNUSED_AFTER_S = 30.0
ASYNCIO_READS = 256 * 1024
T = TypeVar("T")


def _keep_reads_on_the_heap() -> None:
    """Frees a piece of memory that is larger than what asyncio reads into. It asks for 256 KiB for each read, and glibc
    maps pages for that and unmaps them (a tenth of an enqueue) until something larger has been freed once."""
    bytes(2 * ASYNCIO_READS)


class Pool:
    """At most ``size`` connections to one database, and ``lendable`` more that are lent to handlers: heartbeats and
    settles never wait behind an application's code."""

    def __init__(self, url: str, size: int = 5, lendable: int = 10) -> None:
        address = parse(url)
        self._dsn, self.pooled, self.where, self.shown = address.dsn, address.pooled, address.where, address.shown
        self._silence_in_url = SILENCE_SETTING in address.dsn  # somebody has chosen another
        self.meter = Meter()
        self._idle = Idle(self.connect, by_turns=True)
        # Apart from the store's own: what a handler may have kept a hold of serves handlers only.
        # A handler keeps its connection for long, and may be slow inside of its transaction.
        self._idle_lent = Idle(partial(self.connect, brief=False), by_turns=False)
        self._busy: set[Connection] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(size)
        self.posting = asyncio.Semaphore(POSTING_AT_ONCE)
        self._lendable = lendable
        self._lent = asyncio.Semaphore(lendable)
        self._closed = False
        self._contact = asyncio.Event()
        # Also those that are neither idle nor busy: the listener's.
        self._made: weakref.WeakSet[Connection] = weakref.WeakSet()

    async def connect(self, *, brief: bool = True, **options: Any) -> Connection:
        """Returns a connection of its own. Notices a transaction pooler by what it refuses, and adapts for good.
        ``brief``: the server ends a transaction in which it hears nothing for a while, with the connection: a worker
        that is stopped or cut off must not hold the rows of others for as long as it is."""
        try:
            return await self._connect(brief and not self._silence_in_url, **options)
        except Exception as error:
            if not self.pooled and is_connect_rejection_by_pooler(error):
                self.pooled = True
                return await self.connect(brief=brief, **options)
            raise translate(error, self.where) from error

    async def _connect(self, brief: bool, **options: Any) -> Connection:
        settings = {"application_name": "redrive"}
        if self.pooled:
            options["statement_cache_size"] = 0
        else:
            # Any start-up parameter that PgBouncer does not know would do; this one is also right for short queries.
            settings["jit"] = "off"
            if brief:
                settings[SILENCE_SETTING] = LONGEST_SILENCE
        _keep_reads_on_the_heap()
        # Not asyncio.wait_for: on Python 3.11 it swallows a cancellation that meets the end of what it waits for.
        async with asyncio.timeout(CONNECT_TIMEOUT_S + 1):
            connection = await asyncpg.connect(
                self._dsn,
                timeout=CONNECT_TIMEOUT_S,
                command_timeout=COMMAND_TIMEOUT_S,
                server_settings=settings,
                # Behind a pooler a setting of the session is the next client's as well: each transaction sets it.
                connection_class=BriefConnection if brief and self.pooled else StoreConnection,
                **options,
            )
        self._made.add(connection)
        self._contact.set()
        return connection

    async def next_contact(self, seconds: float) -> None:
        """Waits so long, or until somebody has got a connection."""
        self._contact.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._contact.wait()

    @asynccontextmanager
    async def connection(self, *, lent: bool = False) -> AsyncIterator[Connection]:
        """Lends a connection for one use. After an error it is not trusted again."""
        async with self._slot_to_lend() if lent else self._slots:
            connection = await (self._idle_lent if lent else self._idle).take()
            self._busy.add(connection)
            try:
                with connection.lent() if lent else nullcontext():
                    yield connection
            except BaseException as error:
                if lent and _survives(error):
                    await self._reset(connection)
                self._judge(connection, error, lent=lent)
                if isinstance(error, Exception):
                    raise translate(error, self.where) from error
                raise
            else:
                if lent:
                    await self._reset(connection)
                self._give(connection, self._idle_lent if lent else self._idle)
            finally:
                self._busy.discard(connection)

    async def run(self, work: Callable[[Connection], Awaitable[T]], *, atomic: bool = False) -> T:
        """Runs statements on one connection. Behind a pooler everything is a transaction: between two messages outside
        of one, the server underneath may change."""
        if atomic or self.pooled:
            async with self.transaction() as connection:
                return await work(connection)
        # As ``connection`` does it, without the price of a context manager in the hot path.
        async with self._slots:
            connection = await self._idle.take()
            self._busy.add(connection)
            try:
                answer = await work(connection)
            except BaseException as error:
                self._judge(connection, error, lent=False)
                if isinstance(error, Exception):
                    raise translate(error, self.where) from error
                raise
            finally:
                self._busy.discard(connection)
            self._give(connection, self._idle)
            return answer

    @metered("read")
    async def read(self, work: Callable[[Connection], Awaitable[T]], *, snapshot: bool = False) -> T:
        """Runs statements that only read; ``snapshot``: all as of one moment. If the driver cannot read a time, once
        more with times that it can: one row of the year 20,000 would make all around it unreadable."""
        options: dict[str, Any] = {"isolation": "repeatable_read", "readonly": True} if snapshot else {}
        try:
            if not snapshot:
                return await self.run(work)
            async with self.transaction(**options) as connection:
                return await work(connection)
        except StoreError as error:
            if not isinstance(error.__cause__, OverflowError):
                raise
        async with self.transaction(**options) as connection:
            await bring_to_the_ends(connection)
            try:
                return await work(connection)
            finally:
                await connection.reset_type_codec("timestamptz", schema="pg_catalog")

    @asynccontextmanager
    async def _slot_to_lend(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(LEND_TIMEOUT_S):
                await self._lent.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                f"all {self._lendable} connections for handlers' transactions were in use for {LEND_TIMEOUT_S:g} s",
                hint="do slow work before ctx.transaction(), not inside it, or lower the worker's concurrency",
            ) from None
        try:
            yield
        finally:
            self._lent.release()

    @asynccontextmanager
    async def transaction(self, *, lent: bool = False, **options: Any) -> AsyncIterator[Connection]:
        """A connection inside a transaction. The driver's own block would ask a dead wire to roll back as well; here
        such a connection is dropped, which rolls back too."""
        async with self.connection(lent=lent) as connection:
            transaction = connection.transaction(**options)
            await transaction.start()
            try:
                yield connection
            except BaseException as error:
                if _survives(error):
                    await transaction.rollback()
                raise
            await transaction.commit()

    async def close(self) -> None:
        self._closed = True
        while idle := self._idle.connections or self._idle_lent.connections:
            await _close(idle.pop())
        await asyncio.gather(*self._closing)
        for connection in list(self._busy):
            connection.terminate()

    def server_pids(self) -> list[int]:
        """Returns the server's processes for connections of this pool."""
        return [connection.get_server_pid() for connection in self._made if not connection.is_closed()]

    def abandon(self, *, inherited: bool = False) -> None:
        """Drops all connections without their event loop."""
        self._closed = True
        for connection in list(self._made):
            if not connection.is_closed():
                close_without_loop(connection, inherited=inherited)
        self._idle.connections.clear()
        self._idle_lent.connections.clear()
        self._busy.clear()

    async def _reset(self, connection: Connection) -> None:
        """What a handler has done to the session must not reach its next user: another handler, or the store."""
        if connection.changed:
            connection.terminate()
        if self.pooled or connection.is_closed():
            return  # the session is the pooler's
        try:
            async with asyncio.timeout(RESET_TIMEOUT_S):
                await connection.reset()
        except Exception:
            connection.terminate()

    def _judge(self, connection: Connection, error: BaseException, *, lent: bool) -> None:
        """Keeps a connection on which something failed, or drops it."""
        if _survives(error):
            self._give(connection, self._idle_lent if lent else self._idle)
            return
        connection.terminate()
        # A handler's own trouble with files or other hosts says nothing about this wire.
        if isinstance(error, OSError | TimeoutError) and not lent:
            self._drop_idle()

    def _drop_idle(self) -> None:
        """Drops idle connections when the wire broke or does not answer: they may be dead as well, each of which would
        be found out only by waiting for it as long."""
        while idle := self._idle.connections or self._idle_lent.connections:
            idle.pop().terminate()

    def _give(self, connection: Connection, idle: Idle) -> None:
        if self._closed or connection.is_closed() or connection.is_in_transaction():
            connection.terminate()
        else:
            idle.give(connection)
            if len(idle.connections) > 1:
                self._close_one_unused(idle.connections)

    def _close_one_unused(self, idle: list[Connection]) -> None:
        """Closes the connection that nobody has needed for longest: the last one that came back is used first, so that
        a pool at rest comes down to one."""
        if time.monotonic() - idle[0].idle_since < UNUSED_AFTER_S:
            return
        closing = asyncio.create_task(_close(idle.pop(0)))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


async def _close(connection: Connection) -> None:
    try:
        await connection.close(timeout=2)
    except Exception:
        connection.terminate()


_BROKEN = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.exceptions.OperatorInterventionError,
    asyncpg.exceptions.IdleInTransactionSessionTimeoutError,
    asyncpg.exceptions.ReadOnlySQLTransactionError,  # a standby by now; the next connection may find the primary
)


def _survives(error: BaseException) -> bool:
    """Returns whether the connection itself is fine: the server refused a statement, or the caller's own code
    failed."""
    return isinstance(error, Exception) and not isinstance(error, _BROKEN)


def refusal(error: BaseException) -> Exception | None:
    """Returns what the server said behind an error of the port, if it refused a statement; None when the wire is in
    doubt."""
    said = error.__cause__
    return said if isinstance(said, asyncpg.PostgresError) and _survives(said) else None


# Runs named statements on any connection of the pool, each a transaction of its own.

SQL = statements("redrive.stores.postgres", "statements.sql")


async def fetch(pool: Pool, name: str, *args: Any) -> list[Any]:
    """Returns the rows of a named statement."""
    found: list[Any] = await pool.run(lambda connection: connection.fetch(SQL[name], *args))
    return found


def touched(status: str) -> int:
    """Returns how many rows a statement has changed, by what the server says of it: "DELETE 5"."""
    count = status.rpartition(" ")[2]
    return int(count) if count.isdigit() else 0


async def value(pool: Pool, name: str, *args: Any) -> Any:
    """Returns the first value of a named statement."""
    return await pool.run(lambda connection: connection.fetchval(SQL[name], *args))
