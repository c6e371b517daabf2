"""A handler's own transaction: its writes and the task's end are one commit."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

import asyncpg
from asyncpg.connection import _ConnectionProxy

from redrive.kernel.machine import Transition
from redrive.kernel.ports.sql import Transaction
from redrive.stores.features import Features
from redrive.stores.postgres.connection import StoreConnection
from redrive.stores.postgres.pool import Pool, refusal
from redrive.stores.postgres.settle import settle_or_raise
from redrive.stores.refusals import ended_inside, transaction_over
from redrive.stores.sql import statements

# What a handler gets of a connection: everything it can do, for as long as the block lasts.


class LentConnection(_ConnectionProxy):  # type: ignore[misc] # asyncpg has no types; its base makes isinstance hold
    """A stand-in for a connection of the pool, as the ``Transaction`` of the port; ``end`` takes the connection away.

    The connection itself has another user as soon as the block is left: whatever the first one still does with it, in
    a background task or one line too far to the left, would be written into a stranger's transaction.
    """

    __slots__ = ("_lent",)

    def __init__(self, connection: StoreConnection) -> None:
        self._lent: StoreConnection | None = connection
        connection.stand_in = self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python asks everything for those
            raise AttributeError(name)
        found = getattr(self._held(), name)
        return self._guarded(found) if inspect.ismethod(found) else found

    def _guarded(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the method, which is refused also when it was looked up inside the block and is called after it."""

        @functools.wraps(method)
        async def run(*args: Any, **options: Any) -> Any:
            self._held()
            return await method(*args, **options)

        @functools.wraps(method)
        def call(*args: Any, **options: Any) -> Any:
            self._held()
            return method(*args, **options)

        return run if inspect.iscoroutinefunction(method) else call

    def _held(self) -> StoreConnection:
        if self._lent is None:
            raise transaction_over()
        return self._lent

    def end(self) -> None:
        """Takes the connection away. What was made with it (statements, cursors) goes when the pool has it back."""
        self._lent = None

    def entered(self) -> AbstractContextManager[None]:
        """Nothing to do: whoever has it is inside its transaction."""
        return nullcontext()

    def abort(self) -> None:
        """Rolls back, without waiting for it: the server does when the connection is gone."""
        if self._lent is not None:
            self._lent.terminate()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'over' if self._lent is None else repr(self._lent)}>"


SQL = statements("redrive.stores.postgres", "statements.sql")
_ABORTED = asyncpg.exceptions.InFailedSQLTransactionError
_SAVEPOINT_HINT = (
    "PostgreSQL ignores whatever follows an error in its transaction: let the error out of the block, or run the "
    "statement in a savepoint, with `async with tx.transaction(): ...`, or in a def handler "
    "tx.execute('savepoint s') before it and tx.execute('rollback to s') after the error"
)


@asynccontextmanager
async def transaction(
    pool: Pool, features: Features, settlement: Callable[[], Transition]
) -> AsyncIterator[Transaction]:
    """An open transaction; what ``settlement`` returns is applied last and commits with it."""
    theirs: Exception | None = None
    settled = False
    try:
        async with pool.transaction(lent=True) as connection:
            begun = await connection.fetchval(SQL["begun"])
            lent = LentConnection(connection)
            try:
                yield lent
            except Exception as error:
                theirs = _first_error(error, connection)
                raise
            finally:
                lent.end()
            if not connection.is_in_transaction():
                raise ended_inside()
            try:
                await connection.take_back()
                await settle_or_raise(connection, settlement(), features, begun)
            except _ABORTED as error:
                theirs = _first_error(error, connection)
                raise
            settled = True
    except Exception as error:
        # What the commit is refused for is theirs as well: only a handler's tables have something to check there.
        theirs = theirs or (refusal(error) if settled else None)
        if theirs is None:
            raise
    # What the handler raised must not come out as an error of the store. Not within the "except", where its own
    # cause and context would be replaced.
    if theirs is not None:
        raise theirs


def _first_error(error: Exception, connection: StoreConnection) -> Exception:
    """The error that aborted the transaction, if this one says no more than that something did."""
    first = connection.aborted_by
    if isinstance(error, _ABORTED):
        return _with_hint(first or error)
    # Something of the application's own, made of it: it comes from the first error then.
    if first is not None and isinstance(error.__cause__, _ABORTED):
        error.__cause__.__cause__ = first
    return error


def _with_hint(error: Exception) -> Exception:
    if isinstance(error, asyncpg.PostgresError):
        error.hint = f"{error.hint} {_SAVEPOINT_HINT}" if error.hint else _SAVEPOINT_HINT
    else:
        error.add_note(_SAVEPOINT_HINT)
    return error
