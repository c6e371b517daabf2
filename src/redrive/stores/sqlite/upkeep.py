"""Housekeeping: prunes what is past its keep, empties the log, and adds up the store's own time series."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from redrive.kernel.reads import Count
from redrive.kernel.retention import FeatureRule, Retention
from redrive.kernel.series import Cell, Counted, Resolution, SeriesQuery, SeriesRow, Sums, read, sampled
from redrive.kernel.task import LIVE
from redrive.stores.sql import statements
from redrive.stores.sqlite.connect import undo
from redrive.stores.sqlite.session import DAY, Row, Session, dumps, to_datetime, to_micros
from redrive.stores.sqlite.steady import steady
from redrive.stores.upkeep import SHEETS, add_to_series, series_ends, series_rows

# Removes what is past its keep, in bounded pieces, so that nobody waits for long.

SQL = statements("redrive.stores.sqlite", "prune.sql")
ROWS_PER_PIECE = 5000
Piece = tuple[int, bool]  # how many rows went, and whether there may be more


def prune(session: Session, keep: Retention) -> Piece:
    """Removes one piece of everything. Returns how many rows went, and if there may be more. Nothing goes while times
    cannot be relied on."""

    if not steady(session):
        return 0, False

    def before(days: float) -> int:
        return session.now - round(days * DAY)

    session.run(SQL["prune_again"], session.now, session.now - DAY)
    session.run(SQL["prune_workers"], before(keep.worker_days))
    session.run(SQL["prune_retries"], before(keep.dead_letter_days), ROWS_PER_PIECE)
    hours = session.run(SQL["prune_hours"], before(keep.trend_days), ROWS_PER_PIECE)
    pieces = [
        _full(session.run(SQL["prune_history"], before(keep.history_days), ROWS_PER_PIECE)),
        _full(session.run(SQL["prune_short"], session.now, ROWS_PER_PIECE)),
        _orphans(session, "keys", before(keep.key_days)),
        _orphans(session, "attempts", before(keep.attempt_days)),
        _orphans(session, "joins", before(keep.history_days)),
        _dead_letters(session, before(keep.dead_letter_days)),
        _causes(session, before(keep.cause_days), before(max(keep.noted_cause_days, keep.cause_days))),
        *_records(session, keep),
        *_series(session, keep),
        (0, hours >= ROWS_PER_PIECE),
    ]
    return sum(removed for removed, _ in pieces), any(more for _, more in pieces)


def lapse_names(session: Session, keep: Retention) -> int:
    """Gives back names that nobody declared and that had no tasks for so long, with their totals; returns how many.
    Not while times cannot be relied on."""
    if not steady(session):
        return 0
    idle = round(keep.name_days * DAY)
    session.run(SQL["names_used"], session.now, session.now - idle // 2)
    lapsed = session.run(SQL["names_unused"], session.now - idle)
    session.run(SQL["totals_unused"])
    return lapsed


def _full(removed: int) -> Piece:
    return removed, removed >= ROWS_PER_PIECE


def _from(session: Session, what: str, tie: str | int) -> Row:
    """Returns where the last piece ended: rows whose task is there are kept and, until the next pass, not looked at
    again."""
    at, place = session.row(SQL["prune_from"], what) or (0, tie)
    return at, tie if place == "" else place


def _orphans(session: Session, what: str, before: int) -> Piece:
    at, tie = _from(session, what, 0 if what == "attempts" else "")
    rows = session.rows(SQL[what], at, tie, before, ROWS_PER_PIECE)
    return _remove(session, what, rows)


def _dead_letters(session: Session, before: int) -> Piece:
    _, last = _from(session, "letters", 0)
    oldest = session.row(SQL["oldest_letter"], last)
    if oldest is None or oldest[0] >= before:
        return 0, False
    return _remove(session, "letters", session.rows(SQL["letters"], last, ROWS_PER_PIECE, before))


def _causes(session: Session, before: int, noted_before: int) -> Piece:
    at, tie = _from(session, "causes", "")
    rows = session.rows(SQL["causes"], at, tie, before, noted_before, ROWS_PER_PIECE)
    names = dumps([row[1] for row in rows if not row[2]])
    if names != "[]":
        session.run(SQL["prune_cause_hours"], names)
        session.run(SQL["prune_cause_notes"], names)
    return _remove(session, "causes", rows)


def _remove(session: Session, what: str, rows: list[Row]) -> Piece:
    """Removes rows of: time, name, and whether it is kept."""
    if not rows:
        return 0, False
    session.run(SQL["pruned"], what, session.now, *rows[-1][:2])
    removed = session.run(SQL[f"prune_{what}"], dumps([row[1] for row in rows if not row[2]]))
    return removed, len(rows) >= ROWS_PER_PIECE


def _records(session: Session, keep: Retention) -> list[Piece]:
    found = [_full(session.run(SQL["prune_expired"], session.now, ROWS_PER_PIECE))]
    for collection, rule in (keep.records or {}).items():
        states = None if rule.states is None else dumps(rule.states)
        old = session.now - round(rule.days * DAY)
        found.append(
            _full(session.run(SQL["prune_records"], collection, old, states, int(rule.keep_last), ROWS_PER_PIECE))
        )
    return found


def prune_feature(session: Session, rule: FeatureRule) -> Piece:
    """Removes one piece of a feature's own rows."""
    if not steady(session):
        return 0, False
    text = session.features.statement(rule.feature, rule.statement)
    return _full(session.run(text, session.now - round(rule.days * DAY), ROWS_PER_PIECE))


def _series(session: Session, keep: Retention) -> list[Piece]:
    """Not counted among what went: nobody misses a minute of a day ago."""
    days = {"minute": keep.series_minute_days, "hour": keep.series_hour_days, "day": keep.series_day_days}
    session.run(SQL["prune_sheets"], session.now - round(keep.series_minute_days * DAY))
    return [
        (
            0,
            session.run(SQL["prune_series"], resolution, session.now - round(kept * DAY), ROWS_PER_PIECE)
            >= ROWS_PER_PIECE,
        )
        for resolution, kept in days.items()
    ]


# Empties the write-ahead log, which has copies of pages as they were, into the file.

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


# The store's own time series: sheets of workers are added up, and looked at.

SERIES = statements("redrive.stores.sqlite", "series.sql")
OLDEST = statements("redrive.stores.sqlite", "diagnose.sql")["oldest"]
EVERY_SHEET = -1
T = TypeVar("T")


class Series:
    """Looks at the series. Each call sees one snapshot."""

    async def read(self, look: Callable[[Session], T]) -> T:
        raise NotImplementedError

    async def series(self, which: SeriesQuery) -> list[SeriesRow]:
        name, args = "ended", list[Any]([to_micros(which.since)])
        if not which.ends:
            name, args = "rows", [which.resolution.value, *args, which.queue, which.kind]

        def look(session: Session) -> tuple[list[Any], list[Any]]:
            return session.gathered(SERIES[name], *args), session.gathered(SERIES["sheets"], EVERY_SHEET)

        found, fresh = await self.read(look)
        stored, sheets = [(to_datetime(at), *rest) for at, *rest in found], _sheets(fresh)
        return series_ends(which.since, stored, sheets) if which.ends else series_rows(which, stored, sheets)


def add_up(session: Session) -> int:
    """Adds what workers have sent, and a look at how much is there, to the series; returns how many sheets it took."""
    now = to_datetime(session.now)
    sheets = session.gathered(SERIES["sheets"], SHEETS)
    if sheets:
        session.run(SERIES["sheets_gone"], sheets[-1][0])
    today = to_micros(Resolution.DAY.start(now))
    names = [(queue, kind) for queue, kind in session.gathered(SERIES["names"], today)]
    sums = Sums(entry for at, text in _sheets(sheets) for entry in read(text, at))
    sums.add(_look(session, now))
    adding = sums.cells(names)
    keys = dumps([[cell.resolution.value, to_micros(cell.at), cell.queue, cell.kind] for cell in adding])
    stored = [
        (Cell(Resolution(resolution), to_datetime(at), queue, kind), text)
        for resolution, at, queue, kind, text in session.gathered(SERIES["stored"], keys)
    ]
    found = add_to_series(adding, stored)
    session.run(SERIES["put"], dumps([[resolution, to_micros(at), *rest] for resolution, at, *rest in found]))
    return len(sheets)


def _look(session: Session, now: datetime) -> list[Counted]:
    counts = [
        Count(queue, kind, state, n)
        for queue, kind, *numbers in session.rows(SERIES["counts"])
        for state, n in zip(LIVE, numbers, strict=True)
        if n
    ]
    return sampled(now, counts, {queue: to_datetime(since) for queue, since in session.rows(OLDEST)})


def _sheets(found: list[Any]) -> list[tuple[datetime, str]]:
    return [(to_datetime(at), document) for _, at, document in found]
