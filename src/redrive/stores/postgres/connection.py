"""The store's connections: asyncpg's own, with what a handler that is lent one may need or leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import asyncpg

# What a session can keep beyond its transaction, in one message. The settings of the start of the connection are what
# RESET goes back to, ours included. DISCARD ALL would do the same and remove the statements that the driver has
# prepared; of those only the ones that came as SQL go here.
RESET = """
set session authorization default; reset role; reset all; close all; unlisten *; select pg_advisory_unlock_all();
discard temp; discard sequences;
do $$ declare v_name text; begin
  for v_name in select p.name from pg_catalog.pg_prepared_statements p where p.from_sql loop
    execute pg_catalog.format('deallocate %I', v_name);
  end loop;
end $$;
"""


class StoreConnection(asyncpg.Connection):  # type: ignore[misc] # asyncpg has no types
    """A connection that can be lent to a handler, as the ``Transaction`` of the port.

    While it is lent it remembers which error has aborted its transaction: PostgreSQL says that only once.
    """

    # The first refusal since the last statement that succeeded: one that was undone by a savepoint is past.
    aborted_by: asyncpg.PostgresError | None = None
    _lent = False
    _codecs: tuple[tuple[str, str], ...] = ()
    _changed = False

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Whatever is done to it meanwhile is a handler's doing."""
        self.aborted_by, self._codecs, self._changed, self._lent = None, (), False, True
        super().add_query_logger(self._note)
        try:
            yield
        finally:
            self._lent = False
            super().remove_query_logger(self._note)

    def _note(self, query: Any) -> None:
        if query.exception is None:
            self.aborted_by = None
        elif self.aborted_by is None and isinstance(query.exception, asyncpg.PostgresError):
            self.aborted_by = query.exception

    @property
    def changed(self) -> bool:
        """The handler has changed the driver's side of it in a way that no statement undoes."""
        return self._changed or bool(self._codecs)

    async def restore_codecs(self) -> None:
        """Read and write values as the store does, whatever the handler has taught the connection."""
        while self._codecs:
            typename, schema = self._codecs[-1]
            await self.reset_type_codec(typename, schema=schema)
            self._codecs = self._codecs[:-1]

    def entered(self) -> AbstractContextManager[None]:
        """Nothing to do: whoever has the connection is inside its transaction."""
        return nullcontext()

    def abort(self) -> None:
        """Roll back, without waiting for it: the server does when the connection is gone."""
        self.terminate()

    # -- what a handler may do to the driver's side ----------------------------------------------------------------

    async def set_type_codec(self, typename: str, *, schema: str = "public", **how: Any) -> None:
        self._note_codec(typename, schema)
        await super().set_type_codec(typename, schema=schema, **how)

    async def set_builtin_type_codec(self, typename: str, *, schema: str = "public", **how: Any) -> None:
        self._note_codec(typename, schema)
        await super().set_builtin_type_codec(typename, schema=schema, **how)

    def _note_codec(self, typename: str, schema: str) -> None:
        if self._lent:
            self._codecs = (*self._codecs, (typename, schema))

    def add_query_logger(self, callback: Any) -> None:
        self._changed = self._lent
        super().add_query_logger(callback)

    def add_termination_listener(self, callback: Any) -> None:
        self._changed = self._lent
        super().add_termination_listener(callback)

    def get_reset_query(self) -> str:
        return RESET

    _get_reset_query = get_reset_query  # its name before asyncpg 0.30
