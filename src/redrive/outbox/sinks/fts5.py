"""SQLite FTS5: full text in a file, the sink for which nothing has to be installed.

Each document is a row with its version, and deleted ones stay as theirs: the newest version wins, whatever comes when.
Several processes may write to one file.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from redrive.errors import ConfigError
from redrive.outbox.digest import digests_of
from redrive.outbox.event import Event
from redrive.outbox.sink import Digest, Hit, Stored
from redrive.outbox.sinks.fts5_file import Fts5File, transaction
from redrive.outbox.sinks.fts5_indexes import Fts5Indexes, checked
from redrive.outbox.sinks.text_words import Query, pairs_of, query_of
from redrive.outbox.verdict import Verdict

PAGE = 1000


def from_url(url: str) -> Fts5:
    """Returns the sink of ``fts5:///search.db`` (here) or ``fts5:////var/lib/search.db``; ``?name=notes`` is for
    several in one file."""
    where = urlsplit(url)
    path = unquote(where.path).removeprefix("/")
    if where.netloc or not path:
        raise ConfigError("the URL of a full-text sink names no file", hint="fts5:///search.db, with three slashes")
    return Fts5(path, name=parse_qs(where.query).get("name", ["documents"])[0])


class Fts5:
    """Full text in one file: indexes of one name, of which one is live."""

    remembers_deletes = True
    compares_versions = True

    def __init__(self, path: str | Path, *, name: str = "documents") -> None:
        self._indexes = Fts5Indexes(name)
        self._file = Fts5File(path, self._indexes.prepare)

    async def write(self, events: Sequence[Event], index: str | None = None) -> Sequence[Verdict]:
        return await self._file.run(lambda db: self._indexes.write(db, events, index))

    async def check(self) -> None:
        """Raises if the file cannot be opened. Whoever only looks makes none: that is made with the first write, in a
        folder that has to be there."""
        if self._file.is_there():
            await self._file.run(self._indexes.live)

    async def close(self) -> None:
        await self._file.close()

    async def identity(self) -> str | None:
        """Returns what was drawn when the file was made; empty where there is none."""
        return await self._file.run(self._indexes.identity) if self._file.is_there() else ""

    async def prune(self, seconds: float, limit: int) -> int:
        """Forgets versions of what was deleted longer ago than this, so many at once; returns how many. Makes no file:
        where there is none, there is nothing to forget."""
        if not self._file.is_there():
            return 0

        def forget(db: sqlite3.Connection) -> int:
            with transaction(db):
                return self._indexes.execute(db, "prune", None, seconds, limit).rowcount

        return await self._file.run(forget)

    # -- rebuild and verify ----------------------------------------------------------------------------------------

    async def create(self, index: str) -> None:
        await self._file.run(lambda db: self._indexes.make(db, checked(index)))

    async def refresh(self, index: str | None = None) -> None:
        """Nothing to do: what is committed is visible."""

    async def scan(self, index: str | None = None, after: str = "", before: str | None = None) -> AsyncIterator[Stored]:
        while rows := await self._page(index, after, before):
            for row in rows:
                yield Stored(*row)
            after = rows[-1][0]

    async def find(self, keys: Sequence[str], index: str | None = None) -> Sequence[Stored]:
        def read(db: sqlite3.Connection) -> list[Stored]:
            return [Stored(*row) for row in self._indexes.execute(db, "find", index, json.dumps(list(keys)))]

        return await self._file.run(read)

    async def bounds(self, pieces: int, least: int) -> Sequence[str]:
        def read(db: sqlite3.Connection) -> list[str]:
            return [row[0] for row in self._indexes.execute(db, "bounds", None, pieces, least)]

        return await self._file.run(read)

    async def digests(self, bounds: Sequence[str]) -> Sequence[Digest]:
        def compute(db: sqlite3.Connection) -> list[Digest]:
            rows = self._indexes.execute(db, "scan", None, "", None, -1)
            return digests_of(rows, bounds)

        return await self._file.run(compute)

    async def deleted(self, after: str, limit: int) -> Sequence[Stored]:
        def read(db: sqlite3.Connection) -> list[Stored]:
            return [Stored(*row) for row in self._indexes.execute(db, "deleted", None, after, limit)]

        return await self._file.run(read)

    async def deletions(self, keys: Sequence[str]) -> Sequence[Stored]:
        def read(db: sqlite3.Connection) -> list[Stored]:
            return [Stored(*row) for row in self._indexes.execute(db, "deletions", None, json.dumps(list(keys)))]

        return await self._file.run(read)

    async def swap(self, index: str) -> None:
        await self._file.run(lambda db: self._indexes.switch(db, index))

    async def drop(self, index: str) -> None:
        await self._file.run(lambda db: self._indexes.remove(db, index))

    async def search(self, text: str, limit: int = 10) -> list[Hit]:
        """Returns documents that have all of these words."""
        asked = _match(query_of(text))
        if not asked or not self._file.is_there():
            return []

        def find(db: sqlite3.Connection) -> list[Hit]:
            rows = self._indexes.execute(db, "search", None, asked, limit)
            return [Hit(key, score, json.loads(document)) for key, score, document in rows]

        return await self._file.run(find)

    async def finds_pairs(self) -> bool:
        return not self._file.is_there() or await self._file.run(self._indexes.has_pairs)

    async def get(self, key: str, index: str | None = None) -> Any:
        """Returns the document of a key; None where there is none, or it was deleted."""

        def read(db: sqlite3.Connection) -> Any:
            row = self._indexes.execute(db, "get", index, key).fetchone()
            return None if row is None else json.loads(row[0])

        return await self._file.run(read)

    async def _page(self, index: str | None, after: str, before: str | None) -> list[tuple[str, int, int]]:
        def read(db: sqlite3.Connection) -> list[tuple[str, int, int]]:
            return self._indexes.execute(db, "scan", index, after, before, PAGE).fetchall()

        return await self._file.run(read)


def _match(query: Query) -> str:
    """Returns the query in FTS5's language: all of the words, runs as phrases of their pairs, single characters by
    prefix."""
    runs = (f'"{run}" *' if len(run) == 1 else f'"{" ".join(pairs_of(run))}"' for run in query.runs)
    return " ".join([*(f'"{word}"' for word in query.words), *runs])
