"""SQLite FTS5: full text in a file, the sink for which nothing has to be installed.

Each document is a row with its version, and deleted ones stay as theirs: the newest version wins, whatever comes when.
Several processes may write to one file."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from redrive.errors import ConfigError
from redrive.files import create_private
from redrive.outbox.event import Event, Op
from redrive.outbox.sink import Hit, NoSuchIndex
from redrive.outbox.sinks.full_text import FullText, Query, indexed_text, pairs_of, query_of
from redrive.outbox.verdict import Done, Superseded, Verdict
from redrive.stores.sql import statements

T = TypeVar("T")
BUSY_S = 30.0
_encode = json.JSONEncoder(ensure_ascii=False).encode  # one, not one for each document
_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
FIRST = "live"


class Fts5File:
    """One file, opened at first use. ``prepare`` is called with each new connection."""

    def __init__(self, path: str | Path, prepare: Callable[[sqlite3.Connection], None]) -> None:
        self._path = str(path)
        self._prepare = prepare
        self._process = 0
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None  # which file the connection has open
        self._thread: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Returns what ``work`` returns, which is called in the thread with the connection."""
        if self._thread is None or self._process != os.getpid():  # a forked process has a thread of its own
            self._process, self._connection = os.getpid(), None
            self._thread = ThreadPoolExecutor(1, "redrive-fts5")
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(self._open()))

    async def close(self) -> None:
        """Closes the connection and ends the thread."""
        thread, self._thread = self._thread, None
        if thread is not None and self._process == os.getpid():
            await asyncio.wrap_future(thread.submit(self._close))
            thread.shutdown(wait=False)

    def is_there(self) -> bool:
        """Returns whether the file is there; refused where its folder is not."""
        file = Path(self._path)
        if not file.absolute().parent.is_dir():
            raise ConfigError(f"there is no folder for {self._path}", hint="make it, or name another file")
        return file.exists()

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and self._opened != _identity(Path(self._path)):
            self._close()  # it was removed or replaced: SQLite would go on with the old one, which nobody else sees
        if self._connection is None:
            create_private(Path(self._path))  # documents hold what payloads hold
            self._opened = _identity(Path(self._path))
            db = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            db.execute("pragma journal_mode = wal")
            db.execute("pragma synchronous = normal")
            self._prepare(db)
            self._connection = db
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _identity(file: Path) -> tuple[int, int] | None:
    """Returns what tells a file from another of the same name; None where there is none."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
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


def row_of(event: Event) -> tuple[str, int, int, str | None, str, str | None, int]:
    """Returns key, version, whether it is deleted, routing, text, document and base."""
    if event.op is Op.DELETE:
        return event.key, event.version, 1, event.routing, "", None, event.base
    document = _encode(event.payload)
    words = indexed_text("\n".join(_texts(event.payload)))
    return event.key, event.version, 0, event.routing, words, document, event.base


def _texts(value: Any) -> Iterator[str]:
    """Yields the texts and numbers of a document: what it can be found by."""
    if isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def checked(name: str) -> str:
    """Returns the name of an index, if it can be one."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"a full-text index cannot be named {name!r}", hint="small letters, digits and _")
    return name


@cache
def _sql(name: str, documents: str) -> str:
    text = statements("redrive.outbox.sinks", "fts5.sql")[name]
    return text.replace("{docs}", f"{documents}_docs").replace("{text}", f"{documents}_text")


class Fts5Indexes:
    """The indexes of one name: several sinks may share a file."""

    def __init__(self, name: str) -> None:
        self._name = checked(name)
        self._made: set[str] = set()

    def prepare(self, db: sqlite3.Connection) -> None:
        """Makes the table that says which index is live. A new connection may be to a new file."""
        self._made.clear()
        db.execute(_sql("settings", ""))

    def live(self, db: sqlite3.Connection) -> str:
        """Returns the live index; the first one is made when somebody asks for it."""
        row = db.execute(_sql("live", ""), (self._name,)).fetchone()
        name = FIRST if row is None else str(row[0])
        if name not in self._made:
            self.make(db, name)
        return name

    def identity(self, db: sqlite3.Connection) -> str:
        """Returns what the file is known by; it is drawn when somebody first asks."""
        name = f"{self._name}:identity"
        with transaction(db):
            db.execute(_sql("draw_identity", ""), (name,))
            return str(db.execute(_sql("live", ""), (name,)).fetchone()[0])

    def make(self, db: sqlite3.Connection, index: str) -> None:
        """Makes the tables of an index, as far as they are not there."""
        with transaction(db):
            db.execute(self._sql("docs", index))
            db.execute(self._sql("text", index))
            db.execute(self._sql("deleted_index", index))
        self._made.add(index)

    def execute(self, db: sqlite3.Connection, statement: str, index: str | None, *args: Any) -> sqlite3.Cursor:
        """Runs a statement about an index; None: the live one."""
        return db.execute(self._sql(statement, self._chosen(db, index)), args)

    def remove(self, db: sqlite3.Connection, index: str) -> None:
        """Removes the tables of an index that is not the live one."""
        with transaction(db):
            if self.live(db) != checked(index):
                self._drop(db, index)

    def switch(self, db: sqlite3.Connection, index: str) -> None:
        """Makes an index the live one, and drops the old one."""
        with transaction(db):
            old = self.live(db)
            if db.execute(_sql("there", ""), (f"{self._name}_{checked(index)}_docs",)).fetchone() is None:
                raise NoSuchIndex(index)
            db.execute(_sql("set_live", ""), (self._name, checked(index)))
            if old != index:
                self._drop(db, old)

    def write(self, db: sqlite3.Connection, events: Sequence[Event], index: str | None) -> list[Verdict]:
        """Writes what is newer than what is there; returns one verdict for each event."""
        with transaction(db):
            name = self._chosen(db, index)
            keys = json.dumps([event.key for event in events])
            known = {key: found for key, *found in db.execute(self._sql("known", name), (keys,))}
            newer = [event for event in events if event.key not in known or known[event.key][1] < event.order]
            old = [known[event.key] for event in newer if event.key in known]
            words = ((row, body) for row, _, deleted, body in old if not deleted)
            db.executemany(self._sql("forget_words", name), words)
            db.executemany(self._sql("add", name), (row_of(event) for event in newer if event.key not in known))
            changed = [event for event in newer if event.key in known]
            db.executemany(self._sql("change", name), ((*row_of(event)[1:], known[event.key][0]) for event in changed))
            db.execute(self._sql("learn_words", name), (json.dumps([event.key for event in newer]),))
        written = {event.id for event in newer}
        return [Done() if event.id in written else Superseded() for event in events]

    def _chosen(self, db: sqlite3.Connection, index: str | None) -> str:
        return self.live(db) if index is None else checked(index)

    def _sql(self, statement: str, index: str) -> str:
        return _sql(statement, f"{self._name}_{index}")

    def _drop(self, db: sqlite3.Connection, index: str) -> None:
        db.execute(self._sql("drop_text", index))
        db.execute(self._sql("drop_docs", index))
        self._made.discard(index)


def from_url(url: str) -> Fts5:
    """Returns the sink of ``fts5:///search.db`` (here) or ``fts5:////var/lib/search.db``; ``?name=notes`` is for
    several in one file."""
    where = urlsplit(url)
    path = unquote(where.path).removeprefix("/")
    if where.netloc or not path:
        raise ConfigError("the URL of a full-text sink names no file", hint="fts5:///search.db, with three slashes")
    return Fts5(path, name=parse_qs(where.query).get("name", ["documents"])[0])


class Fts5(FullText):
    """Full text in one file: indexes of one name, of which one is live."""

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

    async def swap(self, index: str) -> None:
        await self._file.run(lambda db: self._indexes.switch(db, index))

    async def drop(self, index: str) -> None:
        await self._file.run(lambda db: self._indexes.remove(db, index))

    async def search(self, text: str, limit: int = 10) -> list[Hit]:
        """Returns documents that have all of these words."""
        asked = _match(query_of(text))
        if not asked or not self._file.is_there():
            return []

        rows = await self._rows("search", None, asked, limit)
        return [Hit(key, score, json.loads(document)) for key, score, document in rows]

    async def _rows(self, statement: str, index: str | None, *arguments: Any) -> Sequence[Any]:
        return await self._file.run(lambda db: self._indexes.execute(db, statement, index, *arguments).fetchall())

    def _keys(self, keys: Sequence[str]) -> str:
        return json.dumps(list(keys))


def _match(query: Query) -> str:
    """Returns the query in FTS5's language: all of the words, runs as phrases of their pairs, single characters by
    prefix."""
    runs = (f'"{run}" *' if len(run) == 1 else f'"{" ".join(pairs_of(run))}"' for run in query.runs)
    return " ".join([*(f'"{word}"' for word in query.words), *runs])
