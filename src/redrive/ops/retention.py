"""Retention by the settings, and giving up tasks that have been failed for so many days."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from redrive.ids import new_id
from redrive.kernel.applied import Applied
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.failure_filter import FailedRef, FailureFilter
from redrive.kernel.feature import Feature
from redrive.kernel.handler_notes import BLOCKED_COLLECTION, STRAY_COLLECTION, UNHANDLED_COLLECTION
from redrive.kernel.machine import Event, Transition
from redrive.kernel.operation import COLLECTION as OPERATIONS
from redrive.kernel.operation import FINAL
from redrive.kernel.ports.store import Store
from redrive.kernel.retention import FeatureRule, RecordRule, Retention
from redrive.kernel.task import State
from redrive.ops import access, allowance, approvals, audit_chain, causes, drill, growth, sign_in
from redrive.ops.audit import PRUNE_COLLECTION, RETENTION_ACTOR
from redrive.ops.operations import plans
from redrive.settings import Settings

FAILED_SUMMARY = "TASK_FAILED_PRUNE_SUMMARY"
TASKS_PER_PIECE = 500
GIVE_UP_EVERY_S = 600.0
# What is kept for good, and why.
KEPT_FOR_GOOD = {
    access.ACCESS: "one document, which says that there was a token",
    audit_chain.COLLECTION: "the proof of the audit log: small, and a few hundred a day at most",
    causes.COLLECTION: "goes with its cause",
    PRUNE_COLLECTION: "each says itself until when: ten minutes",
    sign_in.COLLECTION: "each says itself until when: a day unless the settings say otherwise",
    STRAY_COLLECTION: "each says itself until when: a day, or the end of the handler",
    BLOCKED_COLLECTION: "each says itself until when: a day after the last time",
    UNHANDLED_COLLECTION: "each says itself until when: five minutes after the last time",
    allowance.COLLECTION: "each says itself until when: what somebody did alone counts for a while",
}


def retention_of(settings: Settings, features: Iterable[Feature] = ()) -> Retention:
    """Returns how long things are kept by the settings, also by these features."""
    finished = tuple(status.value for status in FINAL)
    decided = tuple(state for state in approvals.APPROVAL_STATES if state != approvals.PENDING)
    return Retention(
        history_days=settings.history_days,
        key_days=settings.key_days,
        attempt_days=settings.attempt_days,
        dead_letter_days=settings.dead_letter_days,
        cause_days=settings.cause_days,
        noted_cause_days=settings.noted_cause_days,
        trend_days=settings.trend_days,
        series_minute_days=settings.series_minute_hours / 24,
        series_hour_days=settings.series_hour_days,
        series_day_days=settings.series_day_days,
        records={
            OPERATIONS: RecordRule(settings.operation_days, finished),
            approvals.COLLECTION: RecordRule(settings.operation_days, decided),
            plans.COLLECTION: RecordRule(settings.plan_days),
            drill.COLLECTION: RecordRule(settings.drill_days),
            growth.COLLECTION: RecordRule(settings.growth_days),
            # Without any token the API would be open to everyone: the last one stays, revoked or not.
            access.COLLECTION: RecordRule(settings.revoked_token_days, (access.REVOKED,), keep_last=True),
        },
        features=tuple(
            FeatureRule(feature.name, statement, days)
            for feature in features
            if feature.retention is not None
            for statement, days in feature.retention(settings).items()
        ),
    )


async def give_up_failed(store: Store, days: float, stopping: Callable[[], bool] = lambda: False) -> int:
    """Forgets tasks that have been failed for longer than so many days; returns how many. They leave for history, and
    go with it. One row of the audit log tells of each piece, in its transaction."""
    cutoff = await store.now() - timedelta(days=days)
    kinds = sorted({count.kind for count in await store.counts() if count.state is State.FAILED and count.n > 0})
    total = 0
    for kind in kinds:
        total += await _give_up_kind(store, kind, days, cutoff, stopping)
    return total


async def _give_up_kind(store: Store, kind: str, days: float, cutoff: datetime, stopping: Callable[[], bool]) -> int:
    """Cancels piece by piece, those that failed first, up to the first one that is too young.

    A failure and when it was are read at once, and a task is given up only if it is still failed by that failure:
    whatever leaves or fails again meanwhile is left alone, and has no say about others.
    """
    total = after = 0
    while not stopping():
        piece = await store.failed_ids(FailureFilter(kind=kind), limit=TASKS_PER_PIECE, after=after)
        old = [one for one in piece if one.failed_at is not None and one.failed_at < cutoff]
        if old:
            applied = await store.apply(_cancellation(old, kind, days, cutoff))
            total += len(old) - len(applied.lost)
        if len(piece) < TASKS_PER_PIECE or any(one.failed_at is not None and one.failed_at >= cutoff for one in piece):
            break
        after = piece[-1].failed_seq or 0
    return total


def _cancellation(tasks: Sequence[FailedRef], kind: str, days: float, cutoff: datetime) -> Commit:
    reason = f"failed for more than {days:g} days"
    bulk_id = str(new_id())
    moves = [
        Transition(
            task.id,
            Event.CANCEL,
            State.CANCELLED,
            reason=reason,
            bulk_id=bulk_id,
            forgotten=True,  # a retry of all that failed is not about what was given up for its age
            seen=task.failed_seq,
        )
        for task in tasks
    ]

    def told(applied: Applied) -> list[Audit]:
        number = len(tasks) - len(applied.lost)
        after = {"given_up": number, "kind": kind, "failed_before": cutoff.isoformat()}
        return (
            [Audit(RETENTION_ACTOR, FAILED_SUMMARY, reason, None, bulk_id, None, after, f"kind:{kind}")]
            if number
            else []
        )

    return Commit(transitions=moves, conclusion=told)
