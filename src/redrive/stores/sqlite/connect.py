"""Opens the file: checks that name what is wrong, and the settings every connection has."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from redrive.errors import ConfigError, StoreUnusable
from redrive.files import create_private
from redrive.stores.shown import shown_path
from redrive.stores.sqlite.errors import is_busy
from redrive.stores.sqlite.url import Location

OLDEST_SQLITE = (3, 37, 0)
LOCK_PATIENCE_S = 10.0
LONGEST_LOCK_PAUSE_S = 0.05
T = TypeVar("T")

# journal_size_limit: a log that grew under a long reader is cut back; autocheckpoint: 16 MB between two, since a
# commit of a thousand tasks already writes about a quarter of that. secure_delete: what is deleted or overwritten is
# zeros then; some builds of SQLite have it on anyway, and erasing data relies on it.
_SETTINGS = """
pragma foreign_keys = on;
pragma temp_store = memory;
pragma journal_size_limit = 67108864;
pragma wal_autocheckpoint = 4000;
pragma cache_size = -65536;
pragma secure_delete = on;
"""


def connect(location: Location) -> sqlite3.Connection:
    """Returns a connection that never waits inside SQLite: waiting is ours (``patiently``)."""
    _check(location)
    if not location.memory:
        create_private(Path(location.path))  # its log and shared memory take its mode over
    # Not bound to this thread: a forked child closes what it inherits from a thread that it does not have.
    connection = sqlite3.connect(
        location.path, timeout=0, isolation_level=None, cached_statements=512, check_same_thread=False
    )
    # Text that is not valid UTF-8 (a file that others write to may hold some) must not make all around it unreadable.
    connection.text_factory = _text
    try:
        patiently(lambda: _prepare(connection, location))
    except BaseException:
        connection.close()
        raise
    return connection


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def patiently(work: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
    """Repeats for a while what another process's lock keeps from happening."""
    give_up = time.monotonic() + LOCK_PATIENCE_S
    longest = 0.002
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > give_up:
                raise
        # Uneven steps, so that two waiting processes do not keep meeting; longer ones for a lock that is held for long.
        sleep(random.uniform(0.0003, longest))  # noqa: S311
        longest = min(longest * 1.1, LONGEST_LOCK_PAUSE_S)


def in_transaction(connection: sqlite3.Connection) -> bool:
    """Returns whether a transaction is open; a connection that was thrown away has none."""
    try:
        return connection.in_transaction
    except sqlite3.ProgrammingError:  # it is closed
        return False


def undo(connection: sqlite3.Connection) -> None:
    """Rolls back whatever transaction a failure left open, if it can: whoever has the connection throws one away that
    is still in a transaction then. It raises nothing: the thread that everybody waits for is what would end."""
    if in_transaction(connection):
        try:
            connection.execute("rollback")
        except (sqlite3.Error, MemoryError):  # SQLite rolled back by itself, or cannot
            return


def _prepare(connection: sqlite3.Connection, location: Location) -> None:
    connection.executescript(_SETTINGS)
    connection.execute(
        "pragma synchronous = normal" if location.synchronous == "normal" else "pragma synchronous = full"
    )
    if location.memory:
        return
    mode = connection.execute("pragma journal_mode").fetchone()[0]
    if mode != "wal":
        mode = connection.execute("pragma journal_mode = wal").fetchone()[0]
    if mode != "wal":
        raise StoreUnusable(
            f"{location.where} cannot use a write-ahead log (its journal mode stays {mode!r})",
            hint="put the file on a local disk: network file systems do not have the shared memory it needs",
        )


def _check(location: Location) -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise ConfigError(
            f"this Python has SQLite {sqlite3.sqlite_version}, redrive needs {'.'.join(map(str, OLDEST_SQLITE))}",
            hint="use a newer Python build or system SQLite library",
        )
    if location.memory:
        return
    path = Path(location.path)
    file = location.file
    if path.is_dir():
        raise ConfigError(f"{file} is a directory, not a database file", hint=f"name a file in it: {file}/redrive.db")
    if not path.parent.is_dir():
        raise ConfigError(f"the directory of {file} does not exist", hint=f"mkdir -p {shown_path(str(path.parent))}")
