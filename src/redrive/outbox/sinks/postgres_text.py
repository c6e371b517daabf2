"""PostgreSQL full text: a table with ``tsvector`` in this or another database.

Each index is a table ``NAME_INDEX``, and ``NAME`` is a view of the live one, which people search. The newest version of
a document wins, and deleted ones stay as their version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import asyncpg

from redrive.errors import ConfigError
from redrive.outbox.event import Event, Op
from redrive.outbox.sink import Hit, NoSuchIndex, PerLoop, Unfit, find_refused
from redrive.outbox.sinks.full_text import FullText, indexed_document, pairs_of, query_of
from redrive.outbox.verdict import Done, Superseded, Verdict
from redrive.stores.sql import statements

_NAME = re.compile(r"(?:[a-z_][a-z0-9_]{0,30}\.)?[a-z_][a-z0-9_]{0,30}")
_INDEX = re.compile(r"[a-z0-9_]{1,25}")
_LANGUAGE = re.compile(r"[a-z_][a-z0-9_.]{0,60}")
FIRST, MARK = "live", "redrive outbox "
TIMEOUT_S = 60.0
CONNECTIONS = 4


def from_url(url: str) -> PostgresText:
    """Returns the sink of ``postgresql://user:password@host/database?table=search.notes&language=english``; other
    options are those of the connection."""
    parts = urlsplit(url)
    options = parse_qs(parts.query)
    table, language = options.pop("table", ["documents"])[-1], options.pop("language", ["simple"])[-1]
    rest = parts._replace(query=urlencode(options, doseq=True)).geturl()
    return PostgresText(rest, table, language=language)


@cache
def _sql(name: str) -> str:
    return statements("redrive.outbox.sinks", "postgres_text.sql")[name]


class PostgresText(FullText):
    """Documents in a database. ``language`` is the text search configuration by which words are found."""

    def __init__(self, url: str, table: str = "documents", *, language: str = "simple") -> None:
        if not _NAME.fullmatch(table):
            raise ConfigError(
                f"a table of documents cannot be named {table!r}",
                hint="small letters, digits and _, 31 at most, also SCHEMA.NAME",
            )
        if not _LANGUAGE.fullmatch(language):
            raise ConfigError(f"there is no language {language!r}", hint="a text search configuration: english, simple")
        self._name, self._language = table, language
        self._pools: PerLoop[Any] = PerLoop(lambda: _new_pool(url))
        self._has_live = False

    async def write(self, events: Sequence[Event], index: str | None = None) -> Sequence[Verdict]:
        table = await self._table(index)
        return await find_refused(events, lambda some: self._write(some, table))

    async def check(self) -> None:
        await (await self._pool()).fetchval("select 1")

    async def close(self) -> None:
        if (pool := self._pools.take()) is not None:
            await pool.close()

    async def identity(self) -> str | None:
        async with (await self._pool()).acquire() as connection:
            live = await self._live(connection)
            found = None if live is None else await connection.fetchval(_sql("identity"), self._of(live))
        return "" if found is None else str(found)

    async def prune(self, seconds: float, limit: int) -> int:
        """Forgets versions of what was deleted longer ago than this, so many at once; returns how many."""
        done = await (await self._pool()).execute(_sql("prune").format(table=await self._table(None)), seconds, limit)
        return int(done.rpartition(" ")[2])

    # -- rebuild and verify ----------------------------------------------------------------------------------------

    async def create(self, index: str) -> None:
        async with (await self._pool()).acquire() as connection, connection.transaction():
            await self._lock(connection)
            await self._create(connection, _checked(index))

    async def swap(self, index: str) -> None:
        async with (await self._pool()).acquire() as connection, connection.transaction():
            await self._lock(connection)
            old = await self._live(connection)
            if old != index:
                if await connection.fetchval("select to_regclass($1)::text", self._of(_checked(index))) is None:
                    raise NoSuchIndex(index)
                await self._switch(connection, _checked(index))
                if old is not None:
                    await connection.execute(_sql("drop").format(table=self._of(old)))

    async def drop(self, index: str) -> None:
        async with (await self._pool()).acquire() as connection, connection.transaction():
            await self._lock(connection)
            if await self._live(connection) != _checked(index):
                await connection.execute(_sql("drop").format(table=self._of(index)))

    async def search(self, text: str, limit: int = 10) -> list[Hit]:
        """Returns documents that have all of these words."""
        query = query_of(text)
        runs = [" <-> ".join(pairs_of(run)) if len(run) > 1 else f"{run}:*" for run in query.runs]
        anywhere, in_order = " & ".join(runs).replace("<->", "&"), " & ".join(runs)
        rows = await self._rows("search", None, query.text, self._language, limit, anywhere, in_order, query.runs)
        return [Hit(row["key"], row["score"], json.loads(row["document"])) for row in rows]

    # -- its tables ------------------------------------------------------------------------------------------------

    async def _pool(self) -> Any:
        return await self._pools.get()

    async def _rows(self, statement: str, index: str | None, *arguments: Any) -> Sequence[Any]:
        text = _sql(statement).format(table=await self._table(index))
        found: Sequence[Any] = await (await self._pool()).fetch(text, *arguments)
        return found

    async def _table(self, index: str | None) -> str:
        """Returns what is written to and read: the view of the live index, which is made when somebody asks for it."""
        if index is not None:
            return self._of(_checked(index))
        if not self._has_live:
            async with (await self._pool()).acquire() as connection, connection.transaction():
                await self._lock(connection)
                if await self._live(connection) is None:
                    await self._create(connection, FIRST)
                    await self._switch(connection, FIRST)
            self._has_live = True
        return self._name

    async def _write(self, events: Sequence[Event], table: str) -> Sequence[Verdict]:
        rows = [
            {
                "key": event.key,
                "version": event.version,
                "base": event.base,
                "deleted": event.op is Op.DELETE,
                "routing": event.routing,
                "document": None if event.op is Op.DELETE else event.payload,
                "found_by": None if event.op is Op.DELETE else _found_by(event.payload),
            }
            for event in events
        ]
        text = _sql("write").format(table=table)
        try:
            written = await (await self._pool()).fetch(text, json.dumps(rows), self._language)
        except (asyncpg.DataError, asyncpg.ProgramLimitExceededError) as error:
            raise Unfit(str(error)) from error  # a NUL, or more words than a row can hold
        keys = {row["key"] for row in written}
        return [Done() if event.key in keys else Superseded() for event in events]

    async def _lock(self, connection: Any) -> None:
        """Waits until nobody else makes, switches or drops tables of this sink."""
        await connection.execute(_sql("lock"), self._name)
        await connection.execute(_sql("patience"))

    async def _live(self, connection: Any) -> str | None:
        mark = await connection.fetchval(_sql("live"), self._name)
        return str(mark).removeprefix(MARK) if mark is not None and str(mark).startswith(MARK) else None

    async def _create(self, connection: Any, index: str) -> None:
        table = self._of(index)
        await connection.execute(_sql("table").format(table=table))
        for statement, ending in (("words", "words"), ("deleted_index", "deletions")):
            name = f"{table.rpartition('.')[2]}_{ending}"
            await connection.execute(_sql(statement).format(table=table, index=name))

    async def _switch(self, connection: Any, index: str) -> None:
        await connection.execute(_sql("view").format(live=self._name, table=self._of(index)))
        await connection.execute(_sql("mark").format(live=self._name, mark=f"'{MARK}{index}'"))

    def _of(self, index: str) -> str:
        return f"{self._name}_{index}"


def _new_pool(url: str) -> Any:
    """Without prepared statements, which a pooler in between may not keep; a request is one large statement."""
    return asyncpg.create_pool(url, min_size=0, max_size=CONNECTIONS, statement_cache_size=0, command_timeout=TIMEOUT_S)


def _found_by(document: Any) -> Any:
    """Returns what a document is found by; None: by itself."""
    indexed = indexed_document(document)
    return None if indexed == document else indexed


def _checked(index: str) -> str:
    if not _INDEX.fullmatch(index):
        raise ConfigError(f"an index cannot be named {index!r}", hint="small letters, digits and _, 25 at most")
    return index
