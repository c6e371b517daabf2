"""The store's connections: asyncpg's own, with what a handler that is lent one may need or leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

# PostgreSQL's own array types, which asyncpg would ask each new connection about.

# The oid of an array: its element's name, and the element's oid.
ARRAYS = {
    199: ("json", 114),
    1000: ("bool", 16),
    1001: ("bytea", 17),
    1005: ("int2", 21),
    1007: ("int4", 23),
    1010: ("tid", 27),
    1015: ("varchar", 1043),
    1016: ("int8", 20),
    1021: ("float4", 700),
    1022: ("float8", 701),
    1115: ("timestamp", 1114),
    1182: ("date", 1082),
    1185: ("timestamptz", 1184),
    1187: ("interval", 1186),
    1231: ("numeric", 1700),
    2951: ("uuid", 2950),
    3807: ("jsonb", 3802),
}


class Answered:
    """Stands for the statement that was not needed. It has a name: no anonymous statement was replaced by it."""

    name = "not sent"


def known_arrays(oids: Iterable[int]) -> list[dict[str, Any]] | None:
    """Returns what the catalogs say about these types, in asyncpg's words; None unless all are arrays known here."""
    wanted = list(oids)
    return [_described(oid) for oid in wanted] if all(oid in ARRAYS for oid in wanted) else None


def _described(oid: int) -> dict[str, Any]:
    element, elements_oid = ARRAYS[oid]
    return {
        "oid": oid,
        "ns": "pg_catalog",
        "name": f"_{element}",
        "kind": b"b",
        "basetype": None,
        "elemtype": elements_oid,
        "elemdelim": ",",
        "range_subtype": None,
        "attrtypoids": None,
        "attrnames": None,
        "basetype_name": None,
        "elemtype_name": element,
        "range_subtype_name": None,
    }


# Reads times that Python's calendar does not have: PostgreSQL's goes on for 300,000 years.

# PostgreSQL sends microseconds since this.
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


async def bring_to_the_ends(connection: Any) -> None:
    """Makes this connection return the first or last time there is for one that is beyond."""
    await connection.set_type_codec(
        "timestamptz", schema="pg_catalog", format="tuple", encoder=_encoded, decoder=_decoded
    )


def _encoded(at: datetime) -> tuple[int]:
    return ((at - _EPOCH) // _MICROSECOND,)


def _decoded(sent: tuple[int]) -> datetime:
    (microseconds,) = sent
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return _LAST if microseconds > 0 else _FIRST


# Remembers which error has aborted a transaction: PostgreSQL says that only once.

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
