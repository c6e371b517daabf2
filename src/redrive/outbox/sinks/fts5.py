"""SQLite FTS5: full text in a file, the sink for which nothing has to be installed.

Each document is a row with its version, and deleted ones stay as theirs: the newest version wins, whatever comes when.
Several processes may write to one file.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from redrive.errors import ConfigError
from redrive.files import create_private
from redrive.outbox.digest import MODULUS, as_digest, number_of
from redrive.outbox.event import Event
from redrive.outbox.sink import Digest, Hit, NoSuchIndex, Stored
from redrive.outbox.sinks.fts5_rows import row_of
from redrive.outbox.verdict import Done, Superseded, Verdict
from redrive.stores.sql import statements

T = TypeVar("T")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
_WORD = re.compile(r"\w+")
FIRST = "live"
PAGE = 1000
BUSY_S = 30.0


def from_url(url: str) -> Fts5:
    """``fts5:///search.db`` (here), ``fts5:////var/lib/search.db``, with ``?name=notes`` for several in one file."""
    where = urlsplit(url)
    path = unquote(where.path).removeprefix("/")
    if where.netloc or not path:
        raise ConfigError("the URL of a full-text sink names no file", hint="fts5:///search.db, with three slashes")
    return Fts5(path, name=parse_qs(where.query).get("name", ["documents"])[0])


@cache
def _sql(name: str, documents: str) -> str:
    text = statements("redrive.outbox.sinks", "fts5.sql")[name]
    return text.replace("{docs}", f"{documents}_docs").replace("{text}", f"{documents}_text")


class Fts5:
    """A file with full text. Its connection has a thread of its own, so that no event loop waits for the disk."""

    remembers_deletes = True
    compares_versions = True

    def __init__(self, path: str | Path, *, name: str = "documents") -> None:
        self._path = str(path)
        self._name = _checked(name)
        self._process = 0
        self._made: set[str] = set()
        self._connection: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None

    async def write(self, events: Sequence[Event], index: str | None = None) -> Sequence[Verdict]:
        return await self._run(lambda db: self._write(db, events, index))

    async def check(self) -> None:
        """Whoever only looks makes no file: that is made with the first write, in a folder that has to be there."""
        if self._is_there():
            await self._run(lambda db: self._live(db))

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None and self._process == os.getpid():
            await asyncio.wrap_future(thread.submit(self._close))
            thread.shutdown(wait=False)

    async def prune(self, seconds: float, limit: int) -> int:
        """Forgets versions of what was deleted longer ago than this, so many at once; returns how many. Makes no file:
        where there is none, there is nothing to forget."""
        if not self._is_there():
            return 0

        def forget(db: sqlite3.Connection) -> int:
            with _transaction(db):
                return db.execute(self._of("prune", self._live(db)), (seconds, limit)).rowcount

        return await self._run(forget)

    # -- rebuild and verify ----------------------------------------------------------------------------------------

    async def create(self, index: str) -> None:
        await self._run(lambda db: self._make(db, _checked(index)))

    async def refresh(self, index: str | None = None) -> None:
        """Nothing to do: what is committed is visible."""

    async def scan(self, index: str | None = None, after: str = "", before: str | None = None) -> AsyncIterator[Stored]:
        while rows := await self._page(index, after, before):
            for key, version in rows:
                yield Stored(key, version)
            after = rows[-1][0]

    async def digest(self, after: str, before: str | None, index: str | None = None) -> Digest | None:
        def compute(db: sqlite3.Connection) -> Digest:
            rows = db.execute(self._of("scan", self._index(db, index)), (after, before, -1))
            count = total = 0
            for key, version in rows:
                count, total = count + 1, (total + number_of(key, version)) % MODULUS
            return as_digest(count, total)

        return await self._run(compute)

    async def nth(self, after: str, before: str | None, number: int) -> str | None:
        def read(db: sqlite3.Connection) -> str | None:
            row = db.execute(self._of("nth", self._live(db)), (after, before, number)).fetchone()
            return None if row is None else str(row[0])

        return await self._run(read)

    async def deleted(self, after: str, limit: int) -> Sequence[Stored]:
        def read(db: sqlite3.Connection) -> list[Stored]:
            return [Stored(*row) for row in db.execute(self._of("deleted", self._live(db)), (after, limit))]

        return await self._run(read)

    async def swap(self, index: str) -> None:
        def switch(db: sqlite3.Connection) -> None:
            with _transaction(db):
                old = self._live(db)
                if db.execute(_sql("there", ""), (f"{self._name}_{_checked(index)}_docs",)).fetchone() is None:
                    raise NoSuchIndex(index)
                db.execute(_sql("set_live", ""), (self._name, _checked(index)))
                if old != index:
                    self._drop(db, old)

        await self._run(switch)

    async def drop(self, index: str) -> None:
        def remove(db: sqlite3.Connection) -> None:
            with _transaction(db):
                if self._live(db) != _checked(index):
                    self._drop(db, index)

        await self._run(remove)

    async def search(self, text: str, limit: int = 10) -> list[Hit]:
        """Returns documents that have all of these words."""
        words = " ".join(f'"{word}"' for word in _WORD.findall(text))
        if not words or not self._is_there():
            return []

        def find(db: sqlite3.Connection) -> list[Hit]:
            rows = db.execute(self._of("search", self._live(db)), (words, limit))
            return [Hit(key, score, json.loads(document)) for key, score, document in rows]

        return await self._run(find)

    async def get(self, key: str, index: str | None = None) -> Any:
        """Returns the document of a key; None where there is none, or it was deleted."""

        def read(db: sqlite3.Connection) -> Any:
            table = f"{self._name}_{self._index(db, index)}_docs"
            row = db.execute(f"select document from {table} where key = ? and not deleted", (key,)).fetchone()  # noqa: S608
            return None if row is None else json.loads(row[0])

        return await self._run(read)

    # -- in the thread ---------------------------------------------------------------------------------------------

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._thread is None or self._process != os.getpid():  # a forked process has a thread of its own
            self._process, self._connection, self._made = os.getpid(), None, set()
            self._thread = ThreadPoolExecutor(1, "redrive-fts5")
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(self._open()))

    def _is_there(self) -> bool:
        """Returns whether the file is there; refused where its folder is not."""
        file = Path(self._path)
        if not file.absolute().parent.is_dir():
            raise ConfigError(f"there is no folder for {self._path}", hint="make it, or name another file")
        return file.exists()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            create_private(Path(self._path))  # documents hold what payloads hold
            db = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            db.execute("pragma journal_mode = wal")
            db.execute("pragma synchronous = normal")
            db.execute(_sql("settings", ""))
            self._connection = db
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _live(self, db: sqlite3.Connection) -> str:
        """Returns the live index; the first one is made when somebody asks for it."""
        row = db.execute(_sql("live", ""), (self._name,)).fetchone()
        name = FIRST if row is None else str(row[0])
        if name not in self._made:
            self._make(db, name)
        return name

    def _index(self, db: sqlite3.Connection, index: str | None) -> str:
        return self._live(db) if index is None else _checked(index)

    def _make(self, db: sqlite3.Connection, index: str) -> None:
        with _transaction(db):
            db.execute(self._of("docs", index))
            db.execute(self._of("text", index))
            columns = [name for (name,) in db.execute(_sql("columns", ""), (f"{self._name}_{index}_docs",))]
            if "deleted_at" not in columns:
                db.execute(self._of("add_deleted_at", index))
                db.execute(self._of("date_deleted", index))
            db.execute(self._of("deleted_index", index))
        self._made.add(index)

    def _drop(self, db: sqlite3.Connection, index: str) -> None:
        db.execute(self._of("drop_text", index))
        db.execute(self._of("drop_docs", index))
        self._made.discard(index)

    def _of(self, statement: str, index: str) -> str:
        return _sql(statement, f"{self._name}_{index}")

    async def _page(self, index: str | None, after: str, before: str | None) -> list[tuple[str, int]]:
        def read(db: sqlite3.Connection) -> list[tuple[str, int]]:
            return db.execute(self._of("scan", self._index(db, index)), (after, before, PAGE)).fetchall()

        return await self._run(read)

    def _write(self, db: sqlite3.Connection, events: Sequence[Event], index: str | None) -> list[Verdict]:
        with _transaction(db):
            name = self._index(db, index)
            keys = json.dumps([event.key for event in events])
            known = {key: found for key, *found in db.execute(self._of("known", name), (keys,))}
            newer = [event for event in events if event.key not in known or known[event.key][1] < event.version]
            old = [known[event.key] for event in newer if event.key in known]
            words = ((row, body) for row, _, deleted, body in old if not deleted)
            db.executemany(self._of("forget_words", name), words)
            db.executemany(self._of("add", name), (row_of(event) for event in newer if event.key not in known))
            changed = [event for event in newer if event.key in known]
            db.executemany(self._of("change", name), ((*row_of(event)[1:], known[event.key][0]) for event in changed))
            db.execute(self._of("learn_words", name), (json.dumps([event.key for event in newer]),))
        written = {event.id for event in newer}
        return [Done() if event.id in written else Superseded() for event in events]


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"a full-text index cannot be named {name!r}", hint="small letters, digits and _")
    return name


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Makes what is done within one transaction, or a part of the one that there is."""
    if db.in_transaction:
        yield
        return
    db.execute("begin immediate")
    try:
        yield
    except BaseException:
        db.execute("rollback")
        raise
    db.execute("commit")
