"""A handler's own transaction on the writing connection: its writes and the task's end are one commit."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from redrive.errors import RedriveError, StoreError
from redrive.stores.refusals import ended_inside, transaction_over
from redrive.stores.sqlite.connect import in_transaction, undo
from redrive.stores.sqlite.connection_thread import Answer, Request, deliver
from redrive.stores.sqlite.session import PendingWakes, Session, Tally

# Refuses statements of a handler that would reach beyond its transaction: the connection is everybody's.

T = TypeVar("T")

# Pragmas that only read what they are given the name of, or whose effect is part of the transaction. All others are
# settings of the connection, of the file's locks or of the whole process once they are given a value.
_WITHIN = frozenset(
    [
        "table_info",
        "table_xinfo",
        "table_list",
        "index_list",
        "index_info",
        "index_xinfo",
        "foreign_key_list",
        "foreign_key_check",
        "integrity_check",
        "quick_check",
        "optimize",
        "incremental_vacuum",
        "defer_foreign_keys",
        "user_version",
        "application_id",
    ]
)


def within_transaction(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Calls ``work``, which may run many statements; none may end the transaction, not even to begin another, nor set
    what would outlive it."""
    refused: StoreError | None = None

    def judge(action: int, name: str | None, value: str | None, *_: object) -> int:
        nonlocal refused
        if action == sqlite3.SQLITE_TRANSACTION:
            refused = ended_inside()
        elif action == sqlite3.SQLITE_PRAGMA and value is not None and str(name).lower() not in _WITHIN:
            refused = _outlives(str(name))
        else:
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_DENY

    connection.set_authorizer(judge)
    try:
        answer = work(connection)
    except Exception as error:
        if refused is not None:
            raise refused from error
        raise
    finally:
        connection.set_authorizer(None)
    if refused is not None:
        raise refused
    return answer


def one_statement(connection: sqlite3.Connection, sql: str, work: Callable[[sqlite3.Connection], T]) -> T:
    """Calls ``work``, which runs this statement. The judge is asked only about pragmas: with one, SQLite prepares every
    statement of the connection anew."""
    return within_transaction(connection, work) if "pragma" in sql.lower() else work(connection)


def _outlives(pragma: str) -> StoreError:
    return StoreError(
        f"PRAGMA {pragma} is a setting that outlives the transaction, of the connection that everybody writes through",
        hint="read it without a value; set what your own statements need on a connection of your own",
    )


CHECK_EVERY_S = 1.0


class WritingThread(Protocol):
    """What a transaction needs of the thread that has the connection."""

    @property
    def stopping(self) -> bool: ...

    def submit(self, request: Request) -> None: ...

    def session(self, connection: sqlite3.Connection) -> Session: ...

    def outside(self) -> AbstractContextManager[None]: ...

    def commit(self, connection: sqlite3.Connection, tally: Tally) -> None: ...

    def announce(self, wakes: PendingWakes) -> None: ...

    def refuse(self, error: BaseException, *, as_it_is: bool = False) -> BaseException: ...


def _nothing(_: Session) -> None:
    return None


@dataclass(slots=True, eq=False)
class Job(Request):
    """One step of an open transaction; ``last`` commits or, without work, rolls back. ``own``: the handler's
    statements, what they get wrong is told as the driver says it."""

    last: bool = False
    own: bool = False


@dataclass(slots=True, eq=False)
class Exclusive(Request):
    """A request that keeps the connection until its caller is done; everybody else waits meanwhile."""

    jobs: queue.SimpleQueue[Job] = field(default_factory=queue.SimpleQueue)
    at_work: Job | None = None
    over: bool = False
    # What a statement that ended the transaction was answered, and so is all that follows.
    ended_by: BaseException | None = None

    def serve(self, writer: WritingThread, connection: sqlite3.Connection) -> None:
        session = writer.session(connection)
        try:
            if not self.future.cancelled():
                deliver([Answer(self, None)])
                while not self._step(writer, session):
                    session.now = writer.session(connection).now
            undo(connection)
        finally:
            # A step is either in the queue before this, and answered here, or its caller sees that it is over.
            self.over = True
            unanswered = [self.at_work] if self.at_work is not None else []
            while not self.jobs.empty():
                unanswered.append(self.jobs.get())
            deliver([Answer(job, error=self.refusal()) for job in unanswered])

    def refusal(self) -> BaseException:
        """Why no statement runs any more."""
        return self.ended_by or transaction_over()

    def _step(self, writer: WritingThread, session: Session) -> bool:
        """True when the transaction is over."""
        try:
            with writer.outside():
                job = self.at_work = self.jobs.get(timeout=CHECK_EVERY_S)
        except queue.Empty:
            # A caller whose loop has gone will never end it; a store that closes does not wait for it.
            return self.loop.is_closed() or writer.stopping
        try:
            value = job.work(session)
            if not session.connection.in_transaction:
                raise ended_inside()
            if job.last:
                writer.commit(session.connection, session.tally)
                session.wakes.anything = True
                writer.announce(session.wakes)
            answer = Answer(job, value)
        except BaseException as error:
            if job.last:
                undo(session.connection)
            answer = Answer(job, error=writer.refuse(error, as_it_is=_of_the_handler(job, error)))
        # A statement of the handler's may have broken the connection, too: an attached file that cannot be opened.
        over = job.last or not in_transaction(session.connection)
        if over and not job.last:
            self.ended_by = answer.error
        deliver([answer])
        self.at_work = None
        return over


def _of_the_handler(job: Job, error: BaseException) -> bool:
    """Raised by the handler's own statements, or by a foreign key that the commit checks: redrive has none of those."""
    code = getattr(error, "sqlite_errorcode", None)
    return job.own or (job.last and code == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY)


class SqliteTransaction:
    """What a handler gets: statements run on the writing thread, inside the open transaction."""

    def __init__(self, owner: object, exclusive: Exclusive) -> None:
        self.owner = owner
        self.open = True
        self._exclusive = exclusive

    async def execute(self, sql: str, *args: Any) -> int:
        """Run one statement; answers how many rows it changed."""

        def change(connection: sqlite3.Connection) -> int:
            return connection.execute(sql, args).rowcount

        return await self.step(lambda session: one_statement(session.connection, sql, change), own=True)

    async def fetch(self, sql: str, *args: Any) -> list[sqlite3.Row]:
        def look(connection: sqlite3.Connection) -> list[sqlite3.Row]:
            cursor = connection.cursor()
            cursor.row_factory = sqlite3.Row
            return cursor.execute(sql, args).fetchall()

        return await self.step(lambda session: one_statement(session.connection, sql, look), own=True)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Call ``work`` with the connection, on its thread. What it raises comes out as it is."""
        return await self.step(lambda session: within_transaction(session.connection, work), own=True)

    async def step(self, work: Callable[[Session], T], *, last: bool = False, own: bool = False) -> T:
        if not self.open:
            raise transaction_over()
        if self._exclusive.ended_by is not None:
            raise self._exclusive.ended_by
        self.open = not last
        loop = asyncio.get_running_loop()
        job = Job(work, loop, loop.create_future(), last, own)
        self._exclusive.jobs.put(job)
        if self._exclusive.over:
            raise self._exclusive.refusal()
        value: T = await job.future
        return value

    @property
    def current(self) -> bool:
        """Statements would run. Not in a process that was forked meanwhile: its thread is the parent's."""
        return self.open and not self._exclusive.over

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make the calling context one that is inside this transaction; for a thread that did not open it itself."""
        before = _current.set(self)
        try:
            yield
        finally:
            _current.reset(before)

    def abort(self) -> None:
        """Roll back, without waiting for it."""
        if self.current:
            self.open = False
            nobody: asyncio.Future[None] = self._exclusive.loop.create_future()
            nobody.cancel()
            self._exclusive.jobs.put(Job(_give_up, self._exclusive.loop, nobody, last=True))


class _Abandoned(Exception):
    """Ends a transaction that its caller no longer wants."""


def _give_up(_: Session) -> None:
    raise _Abandoned


_current: ContextVar[SqliteTransaction | None] = ContextVar("redrive_sqlite_transaction", default=None)


def inside(owner: object) -> SqliteTransaction | None:
    """The open transaction of this store that the calling code is in, if any."""
    transaction = _current.get()
    return transaction if transaction is not None and transaction.current and transaction.owner is owner else None


def refuse_inside(owner: object) -> None:
    """Waiting for the writing connection while holding it would wait for ever."""
    if inside(owner) is not None:
        raise RedriveError(
            "the store was asked to write from inside one of its own transactions, which would wait for itself",
            hint="use the transaction's own execute(), fetch() or run(), or do this after the 'async with' block",
        )


@asynccontextmanager
async def transaction(
    writer: WritingThread, finish: Callable[[], Callable[[Session], None]]
) -> AsyncIterator[SqliteTransaction]:
    """An open transaction; what ``finish`` answers is applied last and commits with it."""
    refuse_inside(writer)
    loop = asyncio.get_running_loop()
    exclusive = Exclusive(_nothing, loop, loop.create_future())
    opened = SqliteTransaction(writer, exclusive)
    writer.submit(exclusive)
    before = _current.get()
    try:
        await exclusive.future
        _current.set(opened)
        yield opened
        await opened.step(finish(), last=True)
    finally:
        opened.abort()
        _current.set(before)
