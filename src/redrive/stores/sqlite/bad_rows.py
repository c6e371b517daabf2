"""Fails rows that cannot be worked with, each by itself, when a call over many was refused.

Nothing here runs while all is well. A claim, a tick or a recovery that was refused has been rolled back; then the rows
that it met are tried one by one, and what does not pass is mended and moved to ``failed``. Of transitions the culprit
is found by halves.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from redrive.errors import InvalidInput, ReactionFailed, SchemaError, StoreError, StoreUnavailable, StoreUnusable
from redrive.ids import from_text, is_id
from redrive.kernel.machine import Transition, postpone, reject
from redrive.kernel.payload import decode
from redrive.kernel.task import MAX_ATTEMPTS, MAX_PAYLOAD_BYTES, MAX_TEXT_BYTES, PRIORITY_MAX, PRIORITY_MIN
from redrive.stores.refusals import PAYLOAD_TOO_LARGE, log_postponed, log_set_aside
from redrive.stores.sql import statements
from redrive.stores.sqlite.errors import breaks_connection, is_busy
from redrive.stores.sqlite.move import move
from redrive.stores.sqlite.session import Session, dumps, inside, to_datetime
from redrive.stores.sqlite.settle import settle

SQL = statements("redrive.stores.sqlite", "bad_rows.sql")
MOST_ROWS_CHECKED = 3000
MOST_TIMEOUT_MS = 2_000_000_000
_TIMES = ("created_at", "run_at", "next_attempt_at", "last_attempt_at", "lease_expires_at", "cancel_requested_at")
_LABELS = ("task_group", "scope", "trace_id", "idempotency_key", "worker_id")


def about_a_row(error: BaseException) -> bool:
    """Returns whether a call was refused for what is in a row, as far as its error tells."""
    if isinstance(error, StoreUnavailable | StoreUnusable | SchemaError):
        return False
    if isinstance(error, sqlite3.Error):
        return not is_busy(error) and not breaks_connection(error)
    return isinstance(error, StoreError | InvalidInput | ValueError | TypeError | OverflowError)


def set_aside(session: Session, queues: Sequence[str]) -> int:
    """Fails the rows that claims and ticks cannot work with; returns how many."""
    found = [row[0] for row in session.rows(SQL["suspects"], dumps(list(queues)), session.now, MOST_ROWS_CHECKED)]
    return _fail_all(session, found)


def set_aside_expired(session: Session) -> int:
    """Fails leases that ran out and whose names nobody can read."""
    found = [row[0] for row in session.rows(SQL["expired"], session.now, MOST_ROWS_CHECKED)]
    return _fail_all(session, found, moving=False)


def _fail_all(session: Session, rowids: Sequence[int], *, moving: bool = True) -> int:
    failed = 0
    for rowid in rowids:
        why = _trial(session, rowid, moving)
        if why is not None:
            fail_row(session, rowid, why)
            failed += 1
    return failed


def _trial(session: Session, rowid: int, moving: bool) -> str | None:
    """Returns why a row cannot be read or (``moving``) moved; None when it can. Whatever is tried is taken back."""
    try:
        inside(session, lambda inner: _try_row(inner, rowid, moving), keep=False)
    except Exception as error:
        if not about_a_row(error):
            raise
        return str(error) or type(error).__name__
    return None


def _try_row(session: Session, rowid: int, moving: bool) -> None:
    row = _row(session, rowid)
    _uuid(row["id"])
    if row["lease_token"] is not None:
        _uuid(row["lease_token"])
    for name in _TIMES:
        if row[name] is not None:
            to_datetime(row[name])
    for name in ("kind", "queue", *_LABELS):
        if row[name] is not None and "\ufffd" in row[name]:
            raise ValueError(f"its {name.removeprefix('task_')} is not valid text")
    if (row["payload_bytes"] or 0) > MAX_PAYLOAD_BYTES:
        raise ValueError(PAYLOAD_TOO_LARGE)
    for name in ("as_ready", "as_claimed", "as_held") if moving else ():
        session.run(SQL[name], rowid)


def fail_row(session: Session, rowid: int, why: str) -> bool:
    """Fails one live task, whatever is in its row; returns whether it was moved. One of a feature that is not known
    here, or that refuses its end, only makes way."""
    feature = _row(session, rowid)["feature"]
    known = feature is None or feature in session.features.reactions
    task_id = _mend(session, rowid, payload=known)
    if known:
        try:
            moved = inside(session, lambda inner: move(inner, [reject(task_id, why)]))
            log_set_aside(task_id, why)
            return bool(moved)
        except Exception as error:
            if not about_a_row(error):
                raise
            why = f"{why}; its feature does not let it end, either: {error}"
    moved = move(session, [postpone(task_id)])
    log_postponed(task_id, why)
    return bool(moved)


def settle_in_parts(
    session: Session, transitions: Sequence[Transition], refused: dict[UUID, str], *, again: bool = False
) -> set[UUID]:
    """Applies what can be applied; returns the ids that were lost, ``again`` as in ``settle``.

    A task that its worker or recovery would move and whose row stands in the way is failed; what an operator wanted of
    it is refused, and the row is left as it is."""
    try:
        return inside(session, lambda inner: settle(inner, transitions, again=again))
    except Exception as raised:
        if not about_a_row(raised):
            raise
        error = raised
    if len(transitions) > 1:
        half = len(transitions) // 2
        lost = settle_in_parts(session, transitions[:half], refused, again=again)
        return lost | settle_in_parts(session, transitions[half:], refused, again=again)
    (transition,) = transitions
    refused[transition.task_id] = str(error)
    if isinstance(error, ReactionFailed):  # nothing is wrong with the row: it is left until the feature is mended
        return {transition.task_id}
    row = session.row("select rowid from redrive_task where id = ?", str(transition.task_id))
    if row is None or not transition.rule.fenced:
        return {transition.task_id}
    failed = inside(session, lambda inner: fail_row(inner, row[0], str(error)))
    return set() if failed else {transition.task_id}


def _row(session: Session, rowid: int) -> dict[str, Any]:
    cursor = session.connection.cursor()
    cursor.row_factory = sqlite3.Row
    return dict(cursor.execute(SQL["row"], (rowid, MAX_PAYLOAD_BYTES)).fetchone())


def _uuid(text: str) -> UUID:
    if not is_id(text):
        raise ValueError(f"{text[:60]!r} is not an id as redrive writes it")
    return from_text(text)


def _mend(session: Session, rowid: int, *, payload: bool) -> UUID:
    """What fits is kept; what does not is cut, and ends in "~" and a digest. A row whose id is none gets a new one.
    ``payload``: it may go, too; not of a task that is to run still."""
    row = _row(session, rowid)
    try:
        task_id = _uuid(row["id"])
    except ValueError:
        task_id = uuid4()
    most = min(max(row["max_attempts"], 1), MAX_ATTEMPTS)
    timeout = row["timeout_ms"]
    kind, queue = _cut(row["kind"], 120), _cut(row["queue"], 120)
    session.run(
        SQL["mend"],
        str(task_id),
        *(_time(row[name], session.now) for name in _TIMES[:4]),
        str(uuid4()) if row["state"] == "running" else None,
        *(_time(row[name], session.now) for name in _TIMES[4:]),
        min(max(row["attempt_count"], 0), most),
        most,
        timeout if timeout is not None and 1 <= timeout <= MOST_TIMEOUT_MS else None,
        min(max(row["priority"], PRIORITY_MIN), PRIORITY_MAX),
        kind,
        queue,
        *(None if row[name] is None else _cut(row[name], MAX_TEXT_BYTES) for name in _LABELS),
        _json(row["memo"]),
        _json(row["progress"]),
        rowid,
    )
    if payload and row["payload"] is not None and "\ufffd" in row["payload"]:
        session.run(SQL["payload"], dumps({"unreadable": row["payload"][:10_000]}), rowid)
    if (queue, kind) != (row["queue"], row["kind"]):  # counted under its new names from here on
        session.tally.add(row["queue"], row["kind"], row["state"], -1)
        session.tally.add(queue, kind, row["state"], 1)
    return task_id


def _cut(text: str, most: int) -> str:
    if 1 <= len(text.encode()) <= most:
        return text
    return f"{text[: most // 4 - 9]}~{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _time(value: int | None, now: int) -> int | None:
    if value is None:
        return None
    try:
        to_datetime(value)
    except OverflowError:
        return now
    return value


def _json(text: str | None) -> str | None:
    try:
        decode(text)
    except ValueError:
        return None
    return text
