"""How long what we write is kept, by the settings; and failed tasks that are given up after so many days."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from redrive.ids import new_id
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Applied, Commit
from redrive.kernel.failed import Failures, Meant
from redrive.kernel.machine import Event, Transition
from redrive.kernel.operation import COLLECTION as OPERATIONS
from redrive.kernel.operation import FINAL
from redrive.kernel.retention import RecordRule, Retention
from redrive.kernel.store import Store
from redrive.kernel.task import State
from redrive.ops import access, allowance, approvals, audit_chain, drill, groups, growth, plans
from redrive.ops.audit import KEEPER, PRUNE_COLLECTION
from redrive.settings import Settings

FAILED_SUMMARY = "TASK_FAILED_PRUNE_SUMMARY"
PIECE = 500
EVERY = 600.0
# What is kept for good, and why.
FOR_GOOD = {
    audit_chain.COLLECTION: "the proof of the audit log: small, and a few hundred a day at most",
    groups.COLLECTION: "goes with its failure group",
    PRUNE_COLLECTION: "each says itself until when: ten minutes",
    allowance.COLLECTION: "each says itself until when: what somebody did alone counts for a while",
}


def retention_of(settings: Settings) -> Retention:
    """What the settings say."""
    finished = tuple(status.value for status in FINAL)
    decided = tuple(state for state in approvals.STATES if state != approvals.PENDING)
    return Retention(
        history_days=settings.history_days, key_days=settings.key_days, attempt_days=settings.attempt_days,
        dead_letter_days=settings.dead_letter_days, cause_days=settings.cause_days,
        noted_cause_days=settings.noted_cause_days, trend_days=settings.trend_days,
        records={
            OPERATIONS: RecordRule(settings.operation_days, finished),
            approvals.COLLECTION: RecordRule(settings.operation_days, decided),
            plans.COLLECTION: RecordRule(settings.plan_days),
            drill.COLLECTION: RecordRule(settings.drill_days),
            growth.COLLECTION: RecordRule(settings.growth_days),
            # Without any token the API would be open to everyone: the last one stays, revoked or not.
            access.COLLECTION: RecordRule(settings.revoked_token_days, (access.REVOKED,), keep_last=True),
        },
    )  # fmt: skip


async def give_up_failed(store: Store, days: float, stopping: Callable[[], bool] = lambda: False) -> int:
    """Cancel tasks that have been failed for longer than so many days; returns how many. They leave for history, and go
    with it. One row of the audit log tells of each piece, in its transaction."""
    cutoff = await store.now() - timedelta(days=days)
    kinds = sorted({count.kind for count in await store.counts() if count.state is State.FAILED and count.n > 0})
    total = 0
    for kind in kinds:
        while not stopping() and (old := await _failed_before(store, Failures(kind=kind), cutoff)):
            applied = await store.apply(_given_up(old, kind, days, cutoff))
            total += len(old) - len(applied.lost)
            if len(old) < PIECE:
                break
    return total


async def _failed_before(store: Store, which: Failures, cutoff: datetime) -> list[Meant]:
    """Those that failed first, up to the moment. Found by halving: tasks are read with all that they carry."""
    piece = await store.failed_ids(which, limit=PIECE)
    low, high = 0, len(piece)
    while low < high:
        middle = (low + high) // 2
        found = await store.failed(Failures(ids=(piece[middle].id,)), limit=1)
        failed_at = found[0].failed_at if found else None
        if failed_at is None or failed_at < cutoff:  # one that has left meanwhile does no harm: it is left alone
            low = middle + 1
        else:
            high = middle
    return piece[:low]


def _given_up(tasks: Sequence[Meant], kind: str, days: float, cutoff: datetime) -> Commit:
    reason = f"failed for more than {days:g} days"
    batch_id = str(new_id())
    moves = [
        Transition(task.id, Event.CANCEL, State.CANCELLED, reason=reason, batch_id=batch_id, seen=task.failed_seq)
        for task in tasks
    ]

    def told(applied: Applied) -> list[Audit]:
        number = len(tasks) - len(applied.lost)
        after = {"given_up": number, "kind": kind, "failed_before": cutoff.isoformat()}
        return [Audit(KEEPER, FAILED_SUMMARY, reason, None, batch_id, None, after, f"kind:{kind}")] if number else []

    return Commit(transitions=moves, conclusion=told)
