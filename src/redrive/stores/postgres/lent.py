"""What a handler gets of a connection: everything it can do, for as long as the block lasts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from asyncpg.connection import _ConnectionProxy

from redrive.stores.postgres.connection import StoreConnection
from redrive.stores.refusals import transaction_over


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
