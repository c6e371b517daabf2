"""The store's database as others see it: by SQL, on connections of our own, past redrive."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any

from redrive.stores import is_sqlite
from redrive.stores.postgres import url as postgres_url
from redrive.stores.sqlite import url as sqlite_url

BUSY_TIMEOUT_S = 60
Row = tuple[Any, ...]


class Database:
    """Runs statements, each on a connection and in a transaction of its own."""

    def __init__(self, url: str) -> None:
        self.postgres = not is_sqlite(url)
        self._url = url

    async def run(self, text: str, *args: Any) -> list[Row]:
        """Returns the rows of a statement. Its parameters are ``$1`` on PostgreSQL, ``?1`` on SQLite."""
        return await (self._on_server(text, args) if self.postgres else asyncio.to_thread(self._in_file, text, args))

    async def _on_server(self, text: str, args: Row) -> list[Row]:
        import asyncpg

        connection = await asyncpg.connect(postgres_url.parse(self._url).dsn, timeout=30)
        try:
            return [tuple(row) for row in await connection.fetch(text, *args)]
        finally:
            await connection.close()

    def _in_file(self, text: str, args: Row) -> list[Row]:
        file = sqlite_url.parse(self._url).path
        with closing(sqlite3.connect(file, timeout=BUSY_TIMEOUT_S)) as connection, connection:
            return connection.execute(text, args).fetchall()

    def table(self, name: str) -> str:
        """Returns how a table of redrive is called here."""
        return f"redrive.{name}" if self.postgres else f"redrive_{name}"

    async def publish(self, projection: str, entity_type: str, entity_id: str, op: str) -> None:
        """Publishes an event by SQL, as an application does that knows nothing else of redrive."""
        columns = "projection, entity_type, entity_id, op, version, payload"
        text = (
            "select redrive.publish($1, $2, $3, $4, 1, '{}')"
            if self.postgres
            else f"insert into redrive_outbox_publish ({columns}) values (?1, ?2, ?3, ?4, 1, '{{}}')"  # noqa: S608
        )
        await self.run(text, projection, entity_type, entity_id, op)
