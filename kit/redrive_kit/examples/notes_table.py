"""The table of the example of notes: each change of a row and its event are one transaction, on both stores.

``redrive outbox load`` writes here, too, where it is given no application to drive.
"""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from redrive import outbox
from redrive.ids import new_id

T = TypeVar("T")
ENTITY = "note"
BUSY_S = 30.0
CONNECTIONS = 10
LOCK = 7_261_530_116  # a number of our own: two that make the table at once would collide
CREATE_TABLE = """create table if not exists redrive_example_note (
  id text primary key, title text not null, text text not null, version bigint not null)"""
INSERT = "insert into redrive_example_note (id, title, text, version) values ($1, $2, $3, 1) returning *"
UPDATE = """update redrive_example_note
set title = coalesce($2, title), text = coalesce($3, text), version = version + 1 where id = $1 returning *"""
# What is deleted has a version, too: a late, older update must not bring the document back.
DELETE = "delete from redrive_example_note where id = $1 returning id, title, text, version + 1 as version"
READ = "select id, title, text, version from redrive_example_note where id = $1"
# In the byte order of ids, which is that of the keys of their documents.
PAGE = "select id, title, text, version from redrive_example_note where id {c} > $1 order by id {c} limit $2"


@dataclass(slots=True, frozen=True)
class Note:
    """A note, as a row and as the document of its events."""

    id: str
    title: str
    text: str
    version: int

    def document(self) -> dict[str, Any]:
        return {"title": self.title, "text": self.text}

    def shown(self) -> dict[str, Any]:
        return asdict(self)


class Notes(ABC):
    """Where notes are kept. A change that finds no note returns None, and publishes nothing."""

    def __init__(self, url: str, projection: str) -> None:
        self._url, self._projection = url, projection

    async def create(self, title: str, text: str) -> Note:
        made = await self._change(INSERT, "create", str(new_id()), title, text)
        assert made is not None
        return made

    async def update(self, note_id: str, title: str | None, text: str | None) -> Note | None:
        return await self._change(UPDATE, "update", note_id, title, text)

    async def delete(self, note_id: str) -> Note | None:
        return await self._change(DELETE, "delete", note_id)

    async def get(self, note_id: str) -> Note | None:
        return next(iter(await self._read(READ, note_id)), None)

    async def page(self, after: str, limit: int) -> Sequence[Note]:
        return await self._read(PAGE, after, limit)

    def _event(self, note: Note, op: str) -> tuple[Any, ...]:
        """Returns what is published of a change."""
        return self._projection, ENTITY, note.id, op, note.version, None if op == "delete" else note.document()

    @abstractmethod
    async def open(self) -> None: ...
    @abstractmethod
    async def close(self) -> None: ...
    @abstractmethod
    async def _change(self, statement: str, op: str, *values: Any) -> Note | None: ...
    @abstractmethod
    async def _read(self, statement: str, *values: Any) -> Sequence[Note]: ...


def notes_of(url: str, projection: str) -> Notes:
    """Returns the notes in the database of a store, whose events go to a projection."""
    return SqliteNotes(url, projection) if url.startswith("sqlite") else PostgresNotes(url, projection)


class PostgresNotes(Notes):
    """Notes in PostgreSQL, by connections of the application's own."""

    _pool: Any = None

    async def open(self) -> None:
        import asyncpg

        from redrive.stores.postgres.url import parse

        self._pool = await asyncpg.create_pool(parse(self._url).dsn, min_size=0, max_size=CONNECTIONS)
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute("select pg_advisory_xact_lock($1)", LOCK)
            await connection.execute(CREATE_TABLE)

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    async def _change(self, statement: str, op: str, *values: Any) -> Note | None:
        async with self._pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(statement, *values)
            if row is None:
                return None
            note = Note(**row)
            await outbox.publish(connection, *self._event(note, op))
            return note

    async def _read(self, statement: str, *values: Any) -> Sequence[Note]:
        return [Note(**row) for row in await self._pool.fetch(statement.replace("{c}", 'collate "C"'), *values)]


class SqliteNotes(Notes):
    """Notes in a SQLite file, by one connection with a thread of its own."""

    def __init__(self, url: str, projection: str) -> None:
        super().__init__(url, projection)
        self._thread = ThreadPoolExecutor(1, "notes")
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        from redrive.stores.sqlite.url import parse

        def connect() -> None:
            file = parse(self._url).path
            self._connection = sqlite3.connect(file, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            self._connection.execute(CREATE_TABLE)

        await self._run(connect)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._run(connection.close)
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _rows(self, statement: str, values: Sequence[Any]) -> list[Note]:
        assert self._connection is not None
        found = self._connection.execute(statement.replace("$", "?").replace("{c}", ""), values)
        return [Note(*row) for row in found]

    async def _read(self, statement: str, *values: Any) -> Sequence[Note]:
        return await self._run(lambda: self._rows(statement, values))

    async def _change(self, statement: str, op: str, *values: Any) -> Note | None:
        def change() -> Note | None:
            assert self._connection is not None
            self._connection.execute("begin immediate")
            with self._connection:  # commits, or rolls back what raised
                found = self._rows(statement, values)
                for note in found:
                    outbox.publish(self._connection, *self._event(note, op))
                return found[0] if found else None

        return await self._run(change)
