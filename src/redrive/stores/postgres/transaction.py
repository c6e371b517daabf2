"""A handler's own transaction: its writes and the task's end are one commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import asyncpg

from redrive.kernel.machine import Transition
from redrive.kernel.ports.store import Transaction
from redrive.stores.features import Features
from redrive.stores.postgres.connection import StoreConnection
from redrive.stores.postgres.lent import LentConnection
from redrive.stores.postgres.pool import Pool, refusal
from redrive.stores.postgres.settle import settle_or_raise
from redrive.stores.refusals import ended_inside
from redrive.stores.sql import statements

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
