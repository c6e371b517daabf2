"""Examines the health of a SQLite file."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from redrive.errors import StoreError
from redrive.kernel.diagnosis import Diagnosis, Finding, Level
from redrive.kernel.figures import LATE_AFTER_S, MOST_COUNTED, Figures
from redrive.stores.refusals import missing_index, took_too_long
from redrive.stores.rows import MOST_VALUES, read_figures
from redrive.stores.sql import statements
from redrive.stores.sqlite.session import Session, dumps, to_datetime
from redrive.stores.sqlite.url import Location

SQL = statements("redrive.stores.sqlite", "diagnose.sql")
LEAST_FREE_BYTES = 256 << 20
LARGE_WAL_BYTES = 256 << 20


def diagnose(session: Session, path: str, indexes: frozenset[str], brief: bool) -> Diagnosis:
    ((pages,),), ((size,),) = session.rows("pragma page_count"), session.rows("pragma page_size")
    found = Diagnosis(to_datetime(session.now), vitals={"size": pages * size})
    if brief:
        return found
    found.oldest = {queue: to_datetime(since) for queue, since in session.rows(SQL["oldest"])}
    expired = session.rows(SQL["expired"], session.now)
    found.note_expired((feature, n, to_datetime(oldest)) for feature, n, oldest in expired)
    found.unknown = dict(session.rows(SQL["unknown"], session.now))
    found.faults = {str(join_id): fault for join_id, fault in session.rows(SQL["faults"])}
    ((found.left_open,),) = session.rows(SQL["waiting"], session.now)
    there = {row[0] for row in session.rows(SQL["indexes"])}
    found.findings = [
        *(missing_index(name) for name in sorted(indexes - there)),
        *_journal(session),
        *_space(path),
    ]
    return found


def _journal(session: Session) -> list[Finding]:
    ((mode,),) = session.rows("pragma journal_mode")
    if mode in ("wal", "memory"):
        return []
    return [
        Finding(
            Level.WARNING,
            "journal",
            f"the journal mode is {mode}: readers and writers wait for each other",
            "pragma journal_mode = wal;",
        )
    ]


def _space(path: str) -> list[Finding]:
    if path == ":memory:":
        return []
    file, wal = Path(path), Path(f"{path}-wal")
    findings = []
    free = shutil.disk_usage(file.resolve().parent).free
    if free < LEAST_FREE_BYTES:
        findings.append(
            Finding(
                Level.CRITICAL,
                "disk",
                f"{free >> 20} MiB are free where {file.name} lives",
                "make room: writes fail when there is none",
            )
        )
    size = wal.stat().st_size if wal.exists() else 0
    if size > LARGE_WAL_BYTES:
        findings.append(
            Finding(
                Level.WARNING,
                "wal",
                f"the write-ahead log is {size >> 20} MiB: a reader keeps it",
                "end long reads; it is cut back when the last one has gone",
            )
        )
    return findings


# Reads figures for the metrics of the fleet.

FIGURES = statements("redrive.stores.sqlite", "figures.sql")


def figures(session: Session) -> Figures:
    ((text,),) = session.rows(FIGURES["figures"], session.now, MOST_VALUES, MOST_COUNTED, LATE_AFTER_S)
    return read_figures(text)


def overdue(session: Session, ages: Mapping[str, float], but: Sequence[str], most: Mapping[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for cap in {most.get(queue, MOST_COUNTED) for queue in ages}:  # a limit is the same for all rows of a statement
        wanted = dumps([(queue, age) for queue, age in ages.items() if most.get(queue, MOST_COUNTED) == cap])
        found |= session.rows(FIGURES["overdue"], session.now, wanted, dumps(list(but)), cap)
    return found


# Answers queries of an application's own tables, on a connection that cannot write.

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
