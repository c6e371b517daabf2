"""Claims tasks: the quick way when nothing is limited or held, else lane by lane."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any
from uuid import UUID, uuid4

from redrive.ids import from_text
from redrive.kernel.ports.store import ClaimRequest
from redrive.kernel.task import MAX_PAYLOAD_BYTES, Claimed
from redrive.kernel.trace import split_trace
from redrive.stores.sql import statements
from redrive.stores.sqlite.session import SECOND, Row, Session, dumps, micros, to_datetime

SQL = statements("redrive.stores.sqlite", "claim.sql")
CLAIM_OPEN_ROWS, CLAIM_PICKED_ROWS = (SQL["rows"].replace(":rows", SQL[which]) for which in ("open", "picked"))
MOST_ROUNDS_PER_CLAIM = 5
QUEUES_AT_ONCE = 8  # whose lanes one statement asks for
# At most this many rows are looked at in one round: a large backlog is set aside over several claims.
MOST_ROWS_PER_ROUND = 2000


@dataclass(slots=True)
class Rules:
    """What may run now: holds, and the room that lanes have over all queues together."""

    queues: tuple[str, ...]
    handles: frozenset[str] | None
    groups: frozenset[str]
    lanes: frozenset[str]
    room: dict[str, int]
    circuits: dict[str, str]  # open circuits that let a probe start, by kind


@dataclass(slots=True)
class Found:
    """Rows of one look: to run, to move to their kind's lane, to hold back for their group."""

    run: list[int] = field(default_factory=list)
    away: list[int] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    held: list[int] = field(default_factory=list)


def claim(session: Session, want: ClaimRequest) -> list[Claimed]:
    holds, kinds, _ = _held_and_limited(session)
    lease = _Lease(session, want)
    if not kinds and want.handles is None and want.only is None and not any(h[0] == "group" for h in holds):
        closed = {name for target, name in holds if target == "queue"}
        lease.claim_open([queue for queue in want.queues if queue not in closed])
    else:
        _claim_by_lanes(session, want, lease)
    return lease.claimed()


def _held_and_limited(session: Session) -> tuple[list[Row], list[Row], list[str]]:
    row = session.row(SQL["rules"], session.now)
    assert row is not None
    return json.loads(row[0]), json.loads(row[1]), json.loads(row[2])


def _claim_by_lanes(session: Session, want: ClaimRequest, lease: _Lease) -> None:
    for _ in range(MOST_ROUNDS_PER_CLAIM):
        left = want.count - lease.count
        rules = _rules(session, want)
        found = _look(session, rules, left, left)
        if found.away or found.held:
            # Usually the next ones may run. If some have to be set aside, nothing runs before that is done, with all of
            # them that can be seen from here: what is behind them, or they themselves in their lane, may be the next.
            found = _look(session, _rules(session, want), left, left + MOST_ROWS_PER_ROUND)
        elif found.run:
            lease.claim_rows(found.run, rules.circuits)
        if found.away:
            session.run(SQL["add_lanes"], dumps(sorted(found.kinds)))
            session.run(SQL["set_aside"], dumps(found.away))
            session.wakes.anything = True
        if found.held:
            for queue, kind in session.rows(SQL["hold_back"], dumps(found.held)):
                session.tally.move(queue, kind, "queued", "paused")
        # Rows that were set aside may have hidden others behind them: look again.
        if lease.count >= want.count or not (found.away or found.held):
            return
    # A large backlog is set aside over several claims: say that it is worth looking again.
    session.wakes.anything = True


class _Lease:
    """Marks rows as running under one new token and gathers them in claim order."""

    def __init__(self, session: Session, want: ClaimRequest) -> None:
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
            self._take(CLAIM_OPEN_ROWS, queue, left)

    def claim_rows(self, rowids: list[int], circuits: dict[str, str]) -> None:
        rows = self._take(CLAIM_PICKED_ROWS, dumps(rowids))
        for probe in (row for row in rows if row[2] in circuits):
            self._session.run(SQL["probe"], probe[1], str(self._token), circuits[probe[2]])
        counts = dumps(list(Counter(row[2] for row in rows).items()))
        self._session.run(SQL["take_places"], self._session.now, counts)

    def _take(self, sql: str, *args: Any) -> list[Row]:
        rows = self._session.gathered(sql, *args)
        if not rows:
            return rows
        now = self._session.now
        expires = now + micros(self._want.lease)
        rowids = dumps([row[0] for row in rows])
        self._session.run(SQL["take"], str(self._token), expires, now, self._want.worker_id, rowids)
        for (queue, kind, bulk_id), n in Counter((row[3], row[2], row[21]) for row in rows).items():
            self._session.tally.move(queue, kind, "queued", "running", n)
            self._session.tally.retry(bulk_id, "running", n)
        self._rows += rows
        return rows

    def claimed(self) -> list[Claimed]:
        # An aggregate promises no order. The sort is stable: first within queues, then the queues.
        self._rows.sort(key=itemgetter(4, 5))
        if len(self._want.queues) > 1:
            order = {queue: index for index, queue in enumerate(self._want.queues)}
            self._rows.sort(key=lambda row: order[row[3]])
        # Tasks enqueued together share their time.
        times = {at: to_datetime(at) for at in {row[9] for row in self._rows}}
        return [_claimed(self._whole(row), self._token, times[row[9]], self._session.now) for row in self._rows]

    def _whole(self, row: Row) -> Row:
        """Returns large payloads, fetched one by one: a thousand of them as one text might be more than SQLite can
        make."""
        large = row[17]
        if large:
            found = self._session.row(SQL["large"], row[0], MAX_PAYLOAD_BYTES)
            if found is None:
                raise ValueError("a payload is over the limit")  # its row will be set aside
            row[6], row[15] = found
        return row


def _claimed(row: Row, token: UUID, created_at: datetime, now: int) -> Claimed:
    """By position: this runs once per task in the hot loop."""
    (
        _,
        id_,
        kind,
        queue,
        priority,
        _,
        payload,
        attempts,
        most,
        _,
        group,
        scope,
        trace,
        key,
        timeout_ms,
        memo,
        replays,
        _,
        feature,
        join_id,
        due,
        _,
    ) = row
    task = Claimed(
        from_text(id_),
        token,
        kind,
        queue,
        payload,
        attempts + 1,
        most,
        priority,
        created_at,
        group,
        scope,
        trace,
        key,
        None if timeout_ms is None else timeout_ms / 1000,
        memo,
        replays,
        feature,
        join_id and from_text(join_id),
        None if due is None else max(now - due, 0) / SECOND,
    )
    if trace is not None:
        task.trace_id, task.trace_parent = split_trace(trace)
    return task


def _rules(session: Session, want: ClaimRequest) -> Rules:
    holds, kinds, shut = _held_and_limited(session)
    held = {target: frozenset(name for t, name in holds if t == target) for target in ("queue", "kind", "group")}
    handles = None if want.handles is None else frozenset(want.handles)
    room: dict[str, int] = {} if want.only is not None else {"": want.count + MOST_ROWS_PER_ROUND}
    circuits: dict[str, str] = {}
    for kind, concurrency, rate_ms, running, next_at, circuit in kinds:
        if kind in held["kind"] or kind != (want.only or kind) or (handles is not None and kind not in handles):
            continue
        if circuit is not None:
            if circuit in shut:
                continue
            circuits[kind] = circuit
        free = want.count if concurrency is None else concurrency - running
        if rate_ms is not None:
            # Further ahead than one step (and a minute): by a clock that was wrong.
            waits = next_at is not None and session.now < next_at <= session.now + rate_ms * 1000 + 60 * SECOND
            free = 0 if waits else min(free, 1)
        if free > 0:
            room[kind] = free
    queues = tuple(queue for queue in want.queues if queue not in held["queue"])
    return Rules(queues, handles, held["group"], frozenset(row[0] for row in kinds), room, circuits)


def _look(session: Session, rules: Rules, left: int, reach: int) -> Found:
    found = Found()
    for queue, lanes in _waiting(session, rules):
        for row in _ready(session, queue, lanes, rules.room, reach):
            if len(found.run) >= left or len(found.away) + len(found.held) >= MOST_ROWS_PER_ROUND:
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
        if (circuit := rules.circuits.get(lane)) is not None:  # one task is the probe, whatever kinds share it
            rules.room.update({kind: 0 for kind, own in rules.circuits.items() if own == circuit})


def _waiting(session: Session, rules: Rules) -> Iterator[tuple[str, list[str]]]:
    """Yields queues with open lanes that have something ready, in their order. One statement asks for several of them:
    features bring queues of their own, which are empty most of the time."""
    for start in range(0, len(rules.queues), QUEUES_AT_ONCE):
        queues = rules.queues[start : start + QUEUES_AT_ONCE]
        lanes: dict[str, list[str]] = {queue: [] for queue in queues}
        names = [lane for lane, free in rules.room.items() if free > 0]
        for queue, lane in session.gathered(SQL["waiting"], dumps(queues), dumps(names)):
            lanes[queue].append(lane)
        yield from ((queue, found) for queue, found in lanes.items() if found)


def _ready(session: Session, queue: str, lanes: list[str], room: dict[str, int], reach: int) -> Iterator[Row]:
    """Returns ready rows of lanes of a queue, merged in order, at most ``reach`` of each."""
    left = [lane for lane in lanes if room[lane] > 0]  # queues before this one may have filled it
    return heapq.merge(*(session.gathered(SQL["ready"], queue, lane, min(room[lane], reach)) for lane in left))


def free_places(session: Session, counts: Counter[str]) -> None:
    """Gives back places of limited kinds, and wakes the fleet where a kind had been full."""
    if not counts:
        return
    for kind, running, concurrency in session.rows(SQL["free_places"], dumps(list(counts.items()))):
        if running + counts[kind] >= concurrency:
            session.wakes.anything = True
