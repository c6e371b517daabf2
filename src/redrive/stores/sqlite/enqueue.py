"""Enqueues by plain statements: usable on any connection, inside the caller's own transaction."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from redrive.errors import TooManyNames
from redrive.kernel import payload as json_text
from redrive.kernel.commit import KnownNames
from redrive.kernel.joins import raise_no_members
from redrive.kernel.task import (
    Enqueued,
    NewTask,
    State,
    check_attempts,
    check_feature,
    check_labels,
    check_name,
    check_priority,
    check_run_at,
    check_seconds,
    check_timeout,
    refuse_reserved,
)
from redrive.kernel.trace import split_trace
from redrive.stores.refusals import too_many_names
from redrive.stores.sql import statements
from redrive.stores.sqlite.session import (
    Execute,
    PendingWakes,
    Session,
    Tally,
    dumps,
    micros,
    take_positions,
    to_datetime,
    to_micros,
)

SQL = statements("redrive.stores.sqlite", "enqueue.sql")
# Rows per INSERT. Few sizes, so that each statement is prepared once and found in the cache from then on.
_SIZES = (100, 10, 1)
_INSERTS = {n: SQL["insert"] + " " + ", ".join([SQL["values"]] * n) for n in _SIZES}


def enqueue_on(connection: sqlite3.Connection, tasks: Sequence[NewTask], now_us: int) -> list[Enqueued]:
    """Enqueues on somebody's connection: it commits or rolls back with their transaction."""
    cursor = connection.cursor()
    # Whatever shape the owner of the connection likes its rows in.
    cursor.row_factory = None
    return enqueue_with(lambda sql, args: cursor.execute(sql, args).fetchall(), tasks, now_us)


def enqueue_with(execute: Execute, tasks: Sequence[NewTask], now_us: int) -> list[Enqueued]:
    """Enqueues through any driver: ``execute(sql, args)`` returns the rows, placeholders are ``?``."""
    tally = Tally()
    answers = add_tasks(execute, tasks, now_us, tally, PendingWakes())
    tally.flush(execute)
    return answers


def enqueue(
    session: Session, tasks: Sequence[NewTask], *, again: bool = False, fired: bool = False, counted: bool = False
) -> list[Enqueued]:
    """Enqueues in a session. ``fired``: by a schedule, whose keys nobody else may use. ``counted``: their joins have
    them as members already."""

    def execute(sql: str, args: tuple[Any, ...]) -> list[Any]:
        return session.connection.execute(sql, args).fetchall()

    return add_tasks(
        execute, tasks, session.now, session.tally, session.wakes, again=again, fired=fired, counted=counted
    )


def add_tasks(
    execute: Execute,
    tasks: Sequence[NewTask],
    now: int,
    tally: Tally,
    wakes: PendingWakes,
    *,
    again: bool = False,
    fired: bool = False,
    counted: bool = False,
) -> list[Enqueued]:
    """Adds tasks, and their keys and totals. ``again``: the same ids may have landed before; those count as created."""
    _check(tasks, now, fired)
    existing = _claim_keys(execute, tasks, now, again)
    skip = set(existing)
    if again:
        ids = dumps([str(task.id) for task in tasks])
        skip.update(UUID(row[0]) for row in execute(SQL["landed"], (ids, ids)))
    new = [task for task in tasks if task.id not in skip] if skip else tasks
    if new:
        lanes = _lanes(execute, new, now, fired)
        _insert(execute, new, lanes, now, tally, wakes)
        _belong(execute, [task for task in new if task.feature or task.facts or task.join], counted)
    if not existing:
        return [Enqueued(task.id) for task in tasks]
    return [existing.get(task.id) or Enqueued(task.id) for task in tasks]


def _check(tasks: Sequence[NewTask], now: int, fired: bool) -> None:
    """Refuses what a worker could not claim or an operator could not list."""
    for name in {task.kind for task in tasks}:
        check_name(name, "kind")
    for name in {task.queue for task in tasks}:
        check_name(name, "queue")
    for number in {task.max_attempts for task in tasks}:
        check_attempts(number)
    for number in {task.priority for task in tasks}:
        check_priority(number)
    for task in tasks:
        if task.payload is not None:
            json_text.check(task.payload)
        if task.feature is not None:
            check_feature(task)
        check_labels(task)
        if not fired:
            refuse_reserved(task.idempotency_key, own=task.own)
        if task.timeout is not None:
            check_timeout(task.timeout)
        if task.run_at is not None:
            check_run_at(task.run_at, to_datetime(now))
        elif task.delay is not None:
            check_seconds(task.delay, "delay")


def digest(task: NewTask) -> str:
    """Returns what a repeated key is compared by: kind and payload, whatever the order of the payload's keys."""
    text = "" if task.payload is None else json.dumps(json.loads(task.payload), sort_keys=True)
    return hashlib.sha256(f"{task.kind}\x1f{text}".encode()).hexdigest()


def _claim_keys(execute: Execute, tasks: Sequence[NewTask], now: int, again: bool) -> dict[UUID, Enqueued]:
    """Takes the keys of new tasks; returns answers for those whose key already names a task: another one, or the very
    same, which an earlier call brought in and which may have finished since."""
    keyed = [(task, digest(task)) for task in tasks if task.idempotency_key is not None]
    if not keyed:
        return {}
    # The first of several with the same key is the one that is made: the insert leaves the later ones out.
    wanted = dumps([[task.idempotency_key, str(task.id), sha, now, task.queue] for task, sha in keyed])
    mine = {row[0] for row in execute(SQL["keys_new"], (wanted,))}
    if len(mine) == len(keyed):
        return {}
    keys = dumps([task.idempotency_key for task, _ in keyed])
    known = {row[0]: (UUID(row[1]), row[2], row[3]) for row in execute(SQL["keys"], (keys,))}
    answers = {}
    for task, sha in keyed:
        owner, theirs, queue = known[task.idempotency_key]
        other = theirs != sha or queue not in (None, task.queue)
        if owner != task.id:
            answers[task.id] = Enqueued(owner, created=False, conflict=other)
        elif task.idempotency_key not in mine:
            answers[task.id] = Enqueued(owner, created=again, conflict=not again and other)
    return answers


def _lanes(execute: Execute, tasks: Sequence[NewTask], now: int, fired: bool) -> set[str]:
    """Returns which of their kinds have a lane of their own. Looks by the same statement for names that are new, which
    producers may have so many of."""
    kinds = {task.kind for task in tasks}
    theirs = {(task.queue, task.kind) for task in tasks if not (fired or task.own or task.feature or task.join)}
    declared = {(task.queue, task.kind) for task in tasks if task.declared}
    lanes, names = set[str](), list[tuple[str, str]]()
    for name, kind in execute(SQL["lanes"], (dumps(list(kinds)), dumps(sorted(theirs)))):
        if kind is None:
            lanes.add(name)
        else:
            names.append((name, kind))
    if names:
        try:
            if said := [name for name in names if name in declared]:
                rows = {(what, name) for pair in said for what, name in zip(("queue", "kind"), pair, strict=True)}
                execute(SQL["know_names"], (dumps(sorted(rows)),))
            admit_names(execute, names, now)
        except TooManyNames:  # the caller's transaction may go on without these tasks
            keys = [(str(task.id), task.idempotency_key) for task in tasks if task.idempotency_key is not None]
            if keys:
                execute(SQL["keys_back"], (dumps([own for own, _ in keys]), dumps([key for _, key in keys])))
            raise
    return lanes


def admit_names(execute: Execute, names: Sequence[tuple[str, str]], now: int) -> None:
    """Lets producers use new names, a queue and a kind each; refuses more than there may be that nobody declared."""
    text = dumps(names)
    known = {(what, name) for what, name in execute(SQL["declared_names"], (text, text))}
    free = [(queue, kind) for queue, kind in names if not {("queue", queue), ("kind", kind)} <= known]
    ((there, most),) = execute(SQL["undeclared_names"], ())
    if free and there + len(free) > most:
        queue, kind = free[max(most - there, 0)]
        raise too_many_names(kind, queue, most)
    execute(SQL["add_names"], (now, text))


def know_names(session: Session, names: KnownNames) -> None:
    """Writes down what an application declares."""
    rows = [*(("queue", name) for name in names.queues), *(("kind", name) for name in names.kinds)]
    session.run(SQL["know_names"], dumps(rows))
    session.run(SQL["know_attempts"], dumps(list(names.attempts.items())))
    if names.most is not None:
        session.run(SQL["bound_names"], names.most)


def _insert(
    execute: Execute, tasks: Sequence[NewTask], lanes: set[str], now: int, tally: Tally, wakes: PendingWakes
) -> None:
    position = take_positions(execute, len(tasks))
    guessed = {task.kind for task in tasks if task.by_kind}
    said: dict[str, int] = dict(execute(SQL["known_attempts"], (dumps(sorted(guessed)),))) if guessed else {}
    values: list[Any] = []
    counts: Counter[tuple[str, str, str]] = Counter()
    for task in tasks:
        due = _due(task, now)
        waits = due is not None and due > now
        state = State.DELAYED.value if waits else State.QUEUED.value
        trace_id, trace_parent = split_trace(task.trace_id)
        values += (
            str(task.id),
            now,
            0 if waits else position,
            due,
            due if waits else None,
            state,
            said.get(task.kind, task.max_attempts) if task.by_kind else task.max_attempts,
            None if task.timeout is None else round(task.timeout * 1000),
            task.priority,
            task.kind,
            task.queue,
            task.kind if task.kind in lanes else "",
            task.group,
            task.scope,
            trace_id,
            task.idempotency_key,
            task.payload,
            trace_parent,
        )
        position += 1
        counts[task.queue, task.kind, state] += 1
        if due is not None and waits:
            wakes.due_at(due, now)
    _insert_rows(execute, values, len(tasks))
    for (queue, kind, state), n in counts.items():
        tally.add(queue, kind, state, n)
        if state == State.QUEUED:
            wakes.queues.add(queue)


def _belong(execute: Execute, tasks: Sequence[NewTask], counted: bool) -> None:
    """Writes which features and joins these tasks belong to, and their facts. Most have none and pay nothing."""
    if not tasks:
        return
    rows = [[str(task.id), task.feature, task.facts, _text(task.join)] for task in tasks]
    execute(SQL["belong"], (dumps(rows),))
    members = Counter(str(task.join) for task in tasks if task.join is not None)
    if members and not counted:
        add_members(execute, members)


def add_members(execute: Execute, members: Mapping[str, int]) -> None:
    """Lets joins have so many members more; refused by one that has ended."""
    found = {row[0] for row in execute(SQL["members"], (dumps(list(members.items())),))}
    for join_id in members.keys() - found:
        raise_no_members(join_id)


def _text(value: UUID | None) -> str | None:
    return None if value is None else str(value)


def _insert_rows(execute: Execute, values: list[Any], left: int) -> None:
    width = len(values) // left
    start = 0
    for size in _SIZES:
        while left >= size:
            end = start + size * width
            execute(_INSERTS[size], tuple(values[start:end]))
            start, left = end, left - size


def _due(task: NewTask, now: int) -> int | None:
    if task.run_at is not None:
        return to_micros(task.run_at)
    return None if task.delay is None else now + micros(task.delay)
