"""Settles tasks: completions, which are most of it, and every other transition of the state machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from redrive.kernel.machine import Event, Transition
from redrive.stores.refusals import lease_lost
from redrive.stores.sql import statements
from redrive.stores.sqlite.claim import free_places
from redrive.stores.sqlite.move import move
from redrive.stores.sqlite.session import Session, dumps, micros
from redrive.stores.sqlite.writes import Arrivals

SQL = statements("redrive.stores.sqlite", "settle.sql")


def settle(session: Session, transitions: Sequence[Transition], *, again: bool = False) -> set[UUID]:
    """Apply transitions; answers the ids of those that lost their lease or met another state.

    ``again``: the answer to an earlier try was lost, so what landed then under the same token is not a loss.
    """
    if len({t.task_id.int for t in transitions}) < len(transitions):
        # One verdict per lease: an element given twice (an operator's list of ids may) counts once, the first.
        transitions = list({(t.task_id, t.token): t for t in reversed(transitions)}.values())[::-1]
    # What a feature reacts to takes the long way, which looks at each row.
    done = [t for t in transitions if t.event is Event.COMPLETE and t.feature is None]
    rest = (
        []
        if len(done) == len(transitions)
        else [t for t in transitions if t.event is not Event.COMPLETE or t.feature is not None]
    )
    moved = _complete(session, done) if done else set()
    if rest:
        moved |= {str(task_id) for task_id in move(session, rest)}
    if len(moved) == len(transitions):
        return set()
    lost = {t.task_id for t in transitions if str(t.task_id) not in moved}
    if lost and again:
        lost -= _landed(session, [t for t in transitions if t.task_id in lost])
    return lost


def _complete(session: Session, done: Sequence[Transition]) -> set[str]:
    tokens = {t.token: str(t.token) for t in done}
    ids = [str(t.task_id) for t in done]
    values = [
        [id_, tokens[t.token], t.execution_ms, t.result, None if t.keep is None else micros(t.keep)]
        for id_, t in zip(ids, done, strict=True)
    ]
    ((end,),) = session.rows(SQL["history_end"])
    count = session.run(SQL["complete"], session.now, dumps(values))
    if not count:
        return set()
    ended = session.gathered(SQL["ended"], end)
    if any(row[4] for row in ended):
        for bulk_id, n in session.rows(SQL["ended_retries"], end):
            session.tally.retry(bulk_id, "running", -n)
            session.tally.retry(bulk_id, "completed", n)
    session.run(SQL["leave"], end)
    places: Counter[str] = Counter()
    arrivals = Arrivals()
    for queue, kind, join_id, n, _ in ended:
        session.tally.move(queue, kind, "running", "completed", n)
        places[kind] += n
        if join_id is not None:
            arrivals.move(join_id, "running", "completed", n)
    free_places(session, places)
    arrivals.write(session)
    completed = set(ids) if count == len(done) else set(session.gathered(SQL["ended_ids"], end))
    if any(t.keep == 0 for t in done):
        session.run(SQL["forget"], end, session.now)
    return completed


def _landed(session: Session, transitions: Sequence[Transition]) -> set[UUID]:
    pairs = dumps([[str(t.task_id), str(t.token)] for t in transitions])
    landed = {UUID(task_id) for task_id in session.gathered(SQL["landed"], pairs)}
    # Of a kind that leaves nothing, what nothing is left of is completed, whoever did it.
    traceless = [str(t.task_id) for t in transitions if t.keep == 0]
    return landed | {UUID(task_id) for task_id in session.gathered(SQL["gone"], dumps(traceless))}


def settle_or_raise(session: Session, transition: Transition) -> None:
    """Ends a task in its handler's own transaction; raises if its lease is lost."""
    if settle(session, [transition]):
        raise lease_lost(transition.task_id)


def renew(
    session: Session, leases: Sequence[tuple[UUID, UUID]], lease: float, progress: Mapping[UUID, str]
) -> set[UUID]:
    """Extends leases and keeps progress, fenced by token; returns the ids whose lease is lost."""
    pairs = dumps([[str(task_id), str(token)] for task_id, token in leases])
    ids = session.gathered(SQL["current"], pairs)
    session.run(SQL["renew"], session.now + micros(lease), dumps(ids))
    renewed = {UUID(task_id) for task_id in ids}
    noted: list[Any] = [[str(task_id), text] for task_id, text in progress.items() if task_id in renewed]
    if noted:
        session.run(SQL["progress"], dumps(noted))
    return {task_id for task_id, _ in leases} - renewed
