"""Examines the health of a SQLite file."""

from __future__ import annotations

import shutil
from pathlib import Path

from redrive.kernel.diagnosis import Diagnosis, Finding, Level
from redrive.stores.refusals import missing_index
from redrive.stores.sql import statements
from redrive.stores.sqlite.clock import to_datetime
from redrive.stores.sqlite.session import Session

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
