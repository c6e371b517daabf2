"""Claiming: the quick way when nothing is limited or held, else lane by lane."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any
from uuid import UUID, uuid4

from redrive.ids import from_text
from redrive.kernel.store import Want
from redrive.kernel.task import Claimed
from redrive.stores.sql import statements
from redrive.stores.sqlite.clock import micros, to_datetime
from redrive.stores.sqlite.session import Row, Session, dumps

SQL = statements("redrive.stores.sqlite", "claim.sql")
ROUNDS = 5
# At most this many rows are looked at in one round: a large backlog is set aside over several claims.
SCAN = 2000


@dataclass(slots=True)
class Rules:
    """What may run now: holds, and the room that lanes have over all queues together."""

    queues: tuple[str, ...]
    handles: frozenset[str] | None
    groups: frozenset[str]
    lanes: frozenset[str]
    room: dict[str, int]


@dataclass(slots=True)
class Found:
    """Rows of one look: to run, to move to their kind's lane, to hold back for their group."""

    run: list[int] = field(default_factory=list)
    away: list[int] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    held: list[int] = field(default_factory=list)


def claim(session: Session, want: Want) -> list[Claimed]:
    holds = session.rows(SQL["holds"])
    kinds = session.rows(SQL["kinds"])
    lease = _Lease(session, want)
    if not kinds and want.handles is None and want.only is None and not any(h[0] == "group" for h in holds):
        closed = {name for target, name in holds if target == "queue"}
        lease.claim_open([queue for queue in want.queues if queue not in closed])
    else:
        _claim_by_lanes(session, want, holds, lease)
    return lease.claimed()


def _claim_by_lanes(session: Session, want: Want, holds: list[Row], lease: _Lease) -> None:
    for _ in range(ROUNDS):
        rules = _rules(session, want, holds)
        found = _look(session, want, rules, want.count - lease.count)
        if found.run:
            lease.claim_rows(found.run)
        if found.away:
            session.run(SQL["add_lanes"], dumps(sorted(found.kinds)))
            session.run(SQL["set_aside"], dumps(found.away))
            session.news.anything = True
        if found.held:
            for queue, kind in session.rows(SQL["hold_back"], dumps(found.held)):
                session.tally.move(queue, kind, "queued", "paused")
        # Rows that were set aside may have hidden others behind them: look again.
        if lease.count >= want.count or not (found.away or found.held):
            return
    # A large backlog is set aside over several claims: say that it is worth looking again.
    session.news.anything = True


class _Lease:
    """Marks rows as running under one new token and gathers them in claim order."""

    def __init__(self, session: Session, want: Want) -> None:
        self._session = session
        self._want = want
        self._token = uuid4()
        self._rows: list[Row] = []

    @property
    def count(self) -> int:
        return len(self._rows)

    def claim_open(self, queues: Iterable[str]) -> None:
        for queue in queues:
            left = self._want.count - self.count
            if left <= 0:
                return
            self._take(SQL["open"], queue, left)

    def claim_rows(self, rowids: list[int]) -> None:
        rows = self._take(SQL["picked"], dumps(rowids))
        counts = dumps(list(Counter(row[1] for row in rows).items()))
        self._session.run(SQL["take_places"], self._session.now, counts)

    def _take(self, sql: str, *args: Any) -> list[Row]:
        now = self._session.now
        expires = now + micros(self._want.lease)
        rows = self._session.rows(sql, str(self._token), expires, now, self._want.worker_id, *args)
        for (queue, kind), n in Counter((row[2], row[1]) for row in rows).items():
            self._session.tally.move(queue, kind, "queued", "running", n)
        self._rows += rows
        return rows

    def claimed(self) -> list[Claimed]:
        # RETURNING promises no order. The sort is stable: first within queues, then the queues.
        self._rows.sort(key=itemgetter(3, 4))
        if len(self._want.queues) > 1:
            order = {queue: index for index, queue in enumerate(self._want.queues)}
            self._rows.sort(key=lambda row: order[row[2]])
        # Tasks enqueued together share their time.
        times = {at: to_datetime(at) for at in {row[8] for row in self._rows}}
        return [_claimed(row, self._token, times[row[8]]) for row in self._rows]


def _claimed(row: Row, token: UUID, created_at: datetime) -> Claimed:
    """By position: this runs once per task in the hot loop."""
    id_, kind, queue, priority, _, payload, attempt, most, _, group, scope, trace, key, timeout_ms, memo, replays = row
    return Claimed(
        from_text(id_), token, kind, queue, payload, attempt, most, priority, created_at, group, scope, trace, key,
        None if timeout_ms is None else timeout_ms / 1000, memo, replays,
    )  # fmt: skip


def _rules(session: Session, want: Want, holds: list[Row]) -> Rules:
    held = {target: frozenset(name for t, name in holds if t == target) for target in ("queue", "kind", "group")}
    handles = None if want.handles is None else frozenset(want.handles)
    room: dict[str, int] = {} if want.only is not None else {"": want.count + SCAN}
    kinds = session.rows(SQL["kinds"])
    for kind, concurrency, rate_ms, running, next_at in kinds:
        if kind in held["kind"] or kind != (want.only or kind) or (handles is not None and kind not in handles):
            continue
        free = want.count if concurrency is None else concurrency - running
        if rate_ms is not None:
            free = 0 if next_at is not None and next_at > session.now else min(free, 1)
        if free > 0:
            room[kind] = free
    queues = tuple(queue for queue in want.queues if queue not in held["queue"])
    return Rules(queues, handles, held["group"], frozenset(row[0] for row in kinds), room)


def _look(session: Session, want: Want, rules: Rules, left: int) -> Found:
    found = Found()
    for queue in rules.queues:
        with _ready(session, queue, rules.room) as rows:
            for row in rows:
                if len(found.run) >= left or len(found.away) + len(found.held) >= SCAN:
                    return found
                _judge(row, rules, found)
    return found


def _judge(row: Row, rules: Rules, found: Found) -> None:
    _, _, rowid, kind, group, lane = row
    if group is not None and group in rules.groups:
        found.held.append(rowid)
    elif lane == "" and (kind in rules.lanes or (rules.handles is not None and kind not in rules.handles)):
        found.away.append(rowid)
        found.kinds.add(kind)
    elif rules.room[lane] > 0:
        rules.room[lane] -= 1
        found.run.append(rowid)


@contextmanager
def _ready(session: Session, queue: str, room: dict[str, int]) -> Iterator[Iterator[Row]]:
    """Ready rows of a queue's open lanes, merged in order. Each lane is read no further than the merge needs."""
    names = dumps([lane for lane, free in room.items() if free > 0])
    lanes = [row[0] for row in session.rows(SQL["waiting"], names, queue)]
    cursors = [session.connection.cursor() for _ in lanes]
    try:
        for cursor, lane in zip(cursors, lanes, strict=True):
            cursor.execute(SQL["ready"], (queue, lane, room[lane]))
        yield heapq.merge(*cursors)
    finally:
        # Before anything is changed: a cursor over rows that move is not worth reasoning about.
        for cursor in cursors:
            cursor.close()


def free_places(session: Session, kinds: Iterable[str]) -> None:
    """Give back places of limited kinds, and wake the fleet where a kind had been full."""
    counts = Counter(kinds)
    if not counts:
        return
    for kind, running, concurrency in session.rows(SQL["free_places"], dumps(list(counts.items()))):
        if running + counts[kind] >= concurrency:
            session.news.anything = True
