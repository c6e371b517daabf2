"""Empties the write-ahead log, which has copies of pages as they were, into the file."""

from __future__ import annotations

from redrive.stores.sqlite.connect import undo
from redrive.stores.sqlite.session import Session

# Milliseconds, for one try. Others who write wait meanwhile, and so does a fork of this process.
SCRUB_PATIENCE_MS = 500


def empty_log(session: Session) -> bool:
    """Writes its pages to the file, and cuts it to nothing; False when others read or write for too long. For a request
    to a reading thread, which has not read anything yet: a checkpoint cannot be part of a transaction."""
    connection = session.connection
    undo(connection)
    connection.execute(f"pragma busy_timeout = {SCRUB_PATIENCE_MS}")
    try:
        busy, _, _ = connection.execute("pragma wal_checkpoint(truncate)").fetchone()
    finally:
        connection.execute("pragma busy_timeout = 0")
    return not busy
