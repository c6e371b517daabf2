"""The store's connections: asyncpg's own, with what a handler that is lent one may need or leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg

from redrive.stores.postgres.array_types import Answered, known_arrays
from redrive.stores.postgres.first_error import ErrorWatch

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

# As whom the session logged in: what the store's own statements run as. A role that a handler took for its rows should
# have no right to them.
OWN_ROLE = "set session authorization default; reset role"

# How long the server waits for the next statement of a transaction of our own. A process that is stopped may be in
# several, which wait for the same row and get it one after the other: all of them together about as long as a command.
SILENCE_SETTING = "idle_in_transaction_session_timeout"
LONGEST_SILENCE = "5s"


class StoreConnection(asyncpg.Connection):  # type: ignore[misc] # asyncpg has no types
    """A connection that can be lent to a handler, which remembers meanwhile what the handler does to it."""

    stand_in: object | None = None  # what the handler knows it as
    idle_since = 0.0  # of the monotonic clock: when it was last given back to its pool
    _watch: ErrorWatch | None = None
    _protocol: Any  # of the driver
    _lent = False
    _codecs: tuple[tuple[str, str], ...] = ()
    _changed = False

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Whatever is done to it meanwhile is a handler's doing."""
        self._codecs, self._changed, self._lent = (), False, True
        self._watch = self._protocol = ErrorWatch(self._protocol)
        try:
            yield
        finally:
            self._lent = False
            self.stand_in = None
            self._pool_release_ctr += 1  # refuses whatever was made with it: statements, cursors, transactions
            if self._protocol is self._watch:  # not if it was closed
                self._protocol = self._watch.protocol
            self._watch = None

    @property
    def aborted_by(self) -> Exception | None:
        """The error that has aborted the transaction, if one has, while it is lent."""
        return self._watch.first if self._watch is not None else None

    def _unwrap(self) -> object:
        """What callbacks of listeners get."""
        return self.stand_in or self

    @property
    def changed(self) -> bool:
        """The handler has changed the driver's side of it in a way that no statement undoes."""
        return self._changed or bool(self._codecs)

    async def take_back(self) -> None:
        """Makes it the store's own again inside the open transaction, whatever the handler has set or taught it."""
        await self.execute(OWN_ROLE)
        while self._codecs:
            typename, schema = self._codecs[-1]
            await self.reset_type_codec(typename, schema=schema)
            self._codecs = self._codecs[:-1]

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

    async def _introspect_types(self, typeoids: Any, timeout: float | None) -> Any:
        """Answers what the driver would ask the catalogs about types, where it is known without."""
        known = known_arrays(typeoids)
        return await super()._introspect_types(typeoids, timeout) if known is None else (known, Answered)

    def get_reset_query(self) -> str:
        return RESET

    _get_reset_query = get_reset_query  # its name before asyncpg 0.30


class BriefConnection(StoreConnection):
    """A connection whose transactions end if their client falls silent; said with their begin, in one message."""

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        if query.startswith("BEGIN"):  # how the driver begins a transaction, which is not nested in another
            query += f"set local {SILENCE_SETTING} = '{LONGEST_SILENCE}';"
        return str(await super().execute(query, *args, timeout=timeout))
