"""Takes a worker's heartbeats."""

from __future__ import annotations

from uuid import UUID

from redrive.ids import from_text, is_id
from redrive.kernel.machine import ExpiredLease
from redrive.kernel.ports.store import Heartbeat, TickResult
from redrive.stores.sql import statements
from redrive.stores.sqlite.clock import SECOND, micros
from redrive.stores.sqlite.session import Session, dumps
from redrive.stores.sqlite.steady import REMOVING_DUTIES, steady

SQL = statements("redrive.stores.sqlite", "tick.sql")
SEEN_EVERY_US = 4_000_000
MOST_PROMOTED_PER_TICK = 1000
# Totals are kept directly, history is one table, and a tick promotes for all queues.
_NOTHING_TO_DO = frozenset({"fold", "partitions", "promote"})


def tick(session: Session, beat: Heartbeat) -> TickResult:
    _beat(session, beat)
    duties = _duties(session, beat)
    promoted, back = _promote(session), resume_groups(session)
    cancels = [from_text(row[0]) for row in session.rows(SQL["cancels"], beat.worker_id) if is_id(row[0])]
    ((due,),) = session.rows(SQL["next_due"], *[session.now] * 3)
    next_due = None if due is None else (due - session.now) / 1_000_000
    return TickResult(duties, cancels, 0.0 if back >= MOST_PROMOTED_PER_TICK else next_due, promoted + back)


def _beat(session: Session, beat: Heartbeat) -> None:
    now, stopping = session.now, int(beat.stopping)
    seen = session.run(
        SQL["beat"], now, beat.running, stopping, beat.worker_id, now - SEEN_EVERY_US, stopping, beat.running
    )
    if not seen:
        session.run(
            SQL["join"],
            beat.worker_id,
            beat.host,
            beat.pid,
            dumps(beat.queues),
            beat.concurrency,
            beat.running,
            beat.version,
            now,
            now,
            stopping,
            round(beat.every * 1000),
        )
    sheet = beat.sheet
    if sheet is not None and session.run(SQL["sheet_new"], sheet.id, beat.worker_id):
        session.run(SQL["sheet"], now, sheet.text)


def _duties(session: Session, beat: Heartbeat) -> list[str]:
    """Returns the duties for this worker: each goes to one worker of the fleet per interval, and to nobody when there
    is nothing to do."""
    now = session.now
    left_out = _NOTHING_TO_DO if steady(session) else _NOTHING_TO_DO | REMOVING_DUTIES
    wanted = {name: micros(every) for name, every in beat.duties.items() if name not in left_out}
    session.run(SQL["duties_new"], now, dumps(list(wanted)))
    taken = {row[0] for row in session.rows(SQL["duties"], now, dumps(list(wanted.items())))}
    recovering = {name for name in taken if name == "recover" or name.startswith("recover:")}
    if recovering and session.row(SQL["any_expired"], now, _known(session)) is None:
        taken -= recovering
    for duty, (collection, state) in beat.while_records.items():
        if duty in taken and session.row(SQL["any_record"], collection, state) is None:
            taken.discard(duty)
    duties = [name for name in wanted if name in taken]
    if "cron" not in duties and session.row(SQL["any_schedule"], now) is not None:
        duties.append("cron")
    return duties


def _promote(session: Session) -> int:
    rows = session.rows(SQL["due"], session.now, MOST_PROMOTED_PER_TICK)
    if not rows:
        return 0
    first = session.positions(len(rows))
    session.run(SQL["promote"], first, dumps([row[0] for row in rows]))
    for _, queue, kind in rows:
        session.tally.move(queue, kind, "delayed", "queued")
        session.wakes.queues.add(queue)
    return len(rows)


def resume_groups(session: Session) -> int:
    """Returns tasks of groups that are held no more to their queues, as many as nobody minds waiting for. Returns how
    many: a full piece means "call again"."""
    group = session.row(SQL["resuming"])
    if group is None:
        return 0
    rows = session.rows(SQL["held_back"], group[0], f"group:{group[0]}", MOST_PROMOTED_PER_TICK)
    if len(rows) < MOST_PROMOTED_PER_TICK:
        session.run(SQL["resumed"], group[0])
    if rows:
        first = session.positions(len(rows))
        session.run(SQL["let_go"], first, dumps([row[0] for row in rows]))
    for _, queue, kind in rows:
        session.tally.move(queue, kind, "paused", "queued")
        session.wakes.queues.add(queue)
    return len(rows)


def expired(session: Session, limit: int, feature: str | None) -> list[ExpiredLease]:
    rows = session.rows(SQL["expired"], session.now, feature, limit)
    for id_, token, *_ in rows:
        if not (is_id(id_) and is_id(token)):
            raise ValueError(f"{id_[:60]!r} or {token[:60]!r} is not an id as redrive writes it")
    return [
        ExpiredLease(
            UUID(id_),
            UUID(token),
            attempt,
            most,
            worker,
            None,
            feature,
            None,
            kind,
            queue,
            trace,
            ms and ms / 1000,
            (session.now - (began or session.now)) / SECOND,
            deaths,
            bool(unbegun),
            cut_offs,
        )
        for id_, token, attempt, most, worker, feature, kind, queue, trace, ms, began, deaths, unbegun, cut_offs in rows
    ]


def _known(session: Session) -> str:
    return dumps(session.features.reactions.names)
