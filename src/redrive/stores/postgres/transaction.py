"""A handler's own transaction: its writes and the task's end are one commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from redrive.kernel.machine import Transition
from redrive.kernel.store import Transaction
from redrive.stores.features import Features
from redrive.stores.postgres.pool import Pool, refusal
from redrive.stores.postgres.settle import settle_or_raise
from redrive.stores.refusals import ended_inside


@asynccontextmanager
async def transaction(
    pool: Pool, features: Features, settlement: Callable[[], Transition]
) -> AsyncIterator[Transaction]:
    """An open transaction; what ``settlement`` returns is applied last and commits with it."""
    theirs: Exception | None = None
    settled = False
    try:
        async with pool.transaction(lent=True) as connection:
            try:
                yield connection
            except Exception as error:
                theirs = error
                raise
            if not connection.is_in_transaction():
                raise ended_inside()
            await settle_or_raise(connection, settlement(), features)
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
