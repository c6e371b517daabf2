"""The file of a full-text sink: its connection has a thread of its own, so that no event loop waits for the disk."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from redrive.errors import ConfigError
from redrive.files import create_private

T = TypeVar("T")
BUSY_S = 30.0


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
