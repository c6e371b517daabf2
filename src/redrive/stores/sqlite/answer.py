"""Answers queries of an application's own tables, on a connection that cannot write."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from redrive.errors import StoreError
from redrive.stores.refusals import took_too_long
from redrive.stores.sqlite.url import Location

STEPS = 10_000  # of SQLite's machine, between two looks at the clock
_READING = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)


def answer(location: Location, query: str, seconds: float) -> Any:
    """Returns the first value of a query's first row."""
    if location.memory:
        raise StoreError("a database in memory has one connection", hint="queries of alerts need a file")
    ends = time.monotonic() + seconds
    address = f"{Path(location.path).absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=seconds, isolation_level=None)) as connection:
            connection.set_authorizer(_judge)
            connection.set_progress_handler(lambda: time.monotonic() > ends, STEPS)
            row = connection.execute(query).fetchone()
    except sqlite3.Error as error:
        raise took_too_long(seconds) if time.monotonic() > ends else StoreError(str(error)) from error
    return None if row is None else row[0]


def _judge(action: int, *_: object) -> int:
    """It may look, and nothing else: no other file, no settings."""
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY
