"""Remembers which error has aborted a transaction: PostgreSQL says that only once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

# Whatever a connection, a prepared statement, a cursor or a copy sends goes through one of these.
_SENDS = frozenset(("prepare", "bind", "bind_execute", "bind_execute_many", "execute", "query", "copy_in", "copy_out"))
_ABORTED = asyncpg.exceptions.InFailedSQLTransactionError


class ErrorWatch:
    """A connection's protocol that keeps the first error since the last statement that succeeded: one that was undone
    by a savepoint is past."""

    def __init__(self, protocol: Any) -> None:
        self.protocol = protocol
        self.first: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.protocol, name)
        # To prepare ``rollback to`` succeeds while the transaction is still aborted.
        return self._watched(found, past=name != "prepare") if name in _SENDS else found

    def _watched(self, send: Callable[..., Awaitable[Any]], *, past: bool) -> Callable[..., Awaitable[Any]]:
        async def run(*args: Any, **options: Any) -> Any:
            try:
                answer = await send(*args, **options)
            except BaseException as error:
                self._note(error)
                raise
            if past:
                self.first = None
            return answer

        return run

    def _note(self, error: BaseException) -> None:
        if isinstance(error, asyncpg.PostgresError):
            # A statement that was not answered in time may have been done all the same: a real refusal knows better.
            if not isinstance(error, _ABORTED) and not isinstance(self.first, asyncpg.PostgresError):
                self.first = error
        elif isinstance(error, TimeoutError):
            self.first = self.first or error
        elif isinstance(error, asyncio.CancelledError):
            # Somebody's own time limit. As it is it would end the handler, as if that were cancelled.
            self.first = self.first or TimeoutError("a statement was cancelled before it was answered")
