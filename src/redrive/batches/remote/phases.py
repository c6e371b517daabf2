"""The Commits of a remote batch: dispatched, failed for want of money, settled, released, cancelled, retried.

Pure: each is made of a batch as it was read, and lands only if nobody has changed that batch since
(``RemoteBatch.moved``). So each happens once, whoever tries, and money and state are never apart."""

from __future__ import annotations

import json
from typing import Any

from redrive.batches.batch import FEATURE, BatchState
from redrive.batches.remote.lanes import Lane, brought
from redrive.batches.remote.model import NO_MONEY, Counts, RemoteBatch
from redrive.batches.remote.names import (
    DISPATCH,
    DISPATCH_QUEUE,
    RELEASE,
    SETTLE,
    SETTLE_QUEUE,
    STEP_ATTEMPTS,
    item_kind,
)
from redrive.ids import new_id
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.joins import NewJoin
from redrive.kernel.reactions import Rows
from redrive.kernel.task import NewTask
from redrive.ledger import movements
from redrive.webhooks import event_task

WORKER = "worker"


def phase_task(kind: str, batch: RemoteBatch, round: int | None = None) -> NewTask:
    """Returns the task that takes a batch a step further; of each round there is one."""
    at = batch.round if round is None else round
    queue = DISPATCH_QUEUE if kind == DISPATCH else SETTLE_QUEUE
    payload = json.dumps({"batch": str(batch.id), "round": at})
    key = f"{kind}:{batch.id}:{at}"
    return NewTask(new_id(), kind, queue, payload, max_attempts=STEP_ATTEMPTS, scope=batch.scope, idempotency_key=key)


def dispatched(batch: RemoteBatch, lanes: int) -> Commit:
    """Freezes the price of all items, opens the join that ends in the settlement, and brings the first items."""
    join = NewJoin(new_id(), on_complete=phase_task(SETTLE, batch))
    first = [
        Lane(str(batch.id), batch.round, at, batch.in_round, lanes, item_kind(batch.provider))
        for at in range(1, min(lanes, batch.in_round) + 1)
    ]
    tasks = [lane.task(join.id, batch.scope) for lane in first]
    total = batch.price * batch.in_round
    money = movements.freeze(batch.account, total, batch.reference, batch.charge) if batch.account and total else None
    moved = batch.moved(state=BatchState.PROCESSING, join_id=str(join.id), frozen=total, dispatched="now")
    return Commit(
        joins=[join],
        enqueues=tasks,
        postings=() if money is None else money.postings,
        rows=[moved, brought(list(zip(first, tasks, strict=True))), *(() if money is None else money.rows)],
        audits=[
            _said(batch, "BATCH_DISPATCHED", after={"round": batch.round, "items": batch.in_round, "frozen": total})
        ],
    )


def unaffordable(batch: RemoteBatch, available: int) -> Commit:
    """Fails a batch before anything of it was started: its account has too little."""
    total = batch.price * batch.in_round
    why = f"account {batch.account} has {available}, and {batch.in_round} items at {batch.price} need {total}"
    changed = {"state": "failed", "code": NO_MONEY, "message": why, "type": "param_error"}
    return Commit(
        enqueues=[notice(batch, BatchState.FAILED, {"failed": batch.in_round}, 0, 0, why)],
        rows=[batch.moved(state=BatchState.FAILED, reason=why, settled="now"), unstarted(batch, changed)],
        audits=[_said(batch, "BATCH_FAILED", why)],
    )


def settled(batch: RemoteBatch, counts: Counts) -> Commit:
    """Captures the price of what succeeded, gives the rest back, and tells the customer."""
    captured = min(counts.in_round["completed"] * batch.price, batch.frozen)
    released = batch.frozen - captured
    state = _final(batch, counts)
    money = None
    if batch.account and batch.frozen:
        money = movements.settle(batch.account, batch.reference, batch.charge, captured=captured, released=released)
    moved = batch.moved(
        state=state,
        reason=batch.reason if state is BatchState.CANCELLED else None,
        frozen=0,
        captured=batch.captured + captured,
        released=batch.released + released,
        settled="now",
    )
    after = {"state": state, "round": batch.round, "captured": captured, "released": released}
    return Commit(
        enqueues=[notice(batch, state, counts.states, batch.captured + captured, batch.released + released)],
        postings=() if money is None else money.postings,
        rows=[moved, *(() if money is None else money.rows)],
        audits=[_said(batch, "BATCH_SETTLED", after=after)],
    )


def released(batch: RemoteBatch, items: int) -> Commit:
    """Gives back the price of cancelled items whose turn never came, before the others have ended."""
    back = min(items * batch.price, batch.frozen)
    money = None
    if batch.account and back:
        key = f"{batch.charge}:unstarted"
        money = movements.settle(batch.account, batch.reference, key, released=back)
    place = {"batch": str(batch.id), "round": batch.round}
    moved = batch.moved(frozen=batch.frozen - back, released=batch.released + back)
    return Commit(
        postings=() if money is None else money.postings,
        rows=[moved, Rows(FEATURE, "items_released", (place,)), *(() if money is None else money.rows)],
        audits=[_said(batch, "BATCH_RELEASED", after={"items": items, "released": back})],
    )


def cancelled(batch: RemoteBatch, who: str, reason: str | None) -> Commit:
    """Cancels what was not started. A batch that runs is settled when the others have ended."""
    audit = Audit(who, "BATCH_CANCEL", reason, target=batch.reference, scope=batch.scope)
    rest = unstarted(batch, {"state": "cancelled"})
    if batch.state is BatchState.PROCESSING:
        moved = batch.moved(reason=reason, cancelled="now", cancelled_by=who)
        return Commit(enqueues=[phase_task(RELEASE, batch)], rows=[moved, rest], audits=[audit])
    moved = batch.moved(state=BatchState.CANCELLED, reason=reason, cancelled="now", cancelled_by=who, settled="now")
    told = notice(batch, BatchState.CANCELLED, {"cancelled": batch.in_round}, batch.captured, batch.released, reason)
    return Commit(enqueues=[told], rows=[moved, rest], audits=[audit])


def retried(batch: RemoteBatch, failed: int, who: str, reason: str | None) -> Commit:
    """Puts the failed items of a settled batch into a new round, with a charge of its own."""
    round = batch.round + 1
    moved = batch.moved(
        state=BatchState.QUEUED,
        reason=None,
        round=round,
        in_round=failed,
        dispatched="no",
        settled="no",
        cancelled="no",
        cancelled_by=None,
    )
    again = Rows(FEATURE, "items_again", ({"batch": str(batch.id), "round": round},))
    audit = Audit(
        who,
        "BATCH_RETRY_FAILED",
        reason,
        target=batch.reference,
        scope=batch.scope,
        after={"round": round, "items": failed},
    )
    return Commit(enqueues=[phase_task(DISPATCH, batch, round)], rows=[moved, again], audits=[audit])


def unstarted(batch: RemoteBatch, change: dict[str, Any]) -> Rows:
    """Returns what becomes of items whose turn has not come."""
    return Rows(FEATURE, "items_unstarted", ({"batch": str(batch.id), "round": batch.round, **change},))


def notice(
    batch: RemoteBatch, state: BatchState, items: Any, captured: int, released: int, reason: str | None = None
) -> NewTask:
    """Returns the task that tells the customer what became of a batch: once for each round, by its id."""
    data = {
        "batch": str(batch.id),
        "name": batch.name,
        "key": batch.key,
        "meta": batch.meta,
        "state": state,
        "round": batch.round,
        "items": dict(items),
        "account": batch.account,
        "captured": captured,
        "released": released,
        "reason": reason or batch.reason,
    }
    given = {"account": batch.account} if batch.account else {}
    return event_task(
        f"batch.{state}", data, event_id=f"batch-{batch.id}-{batch.round}", url=batch.webhook_url, **given
    )


def _final(batch: RemoteBatch, counts: Counts) -> BatchState:
    if batch.cancelled_at is not None:
        return BatchState.CANCELLED
    return BatchState.COMPLETED if counts.states["completed"] else BatchState.FAILED


def _said(batch: RemoteBatch, action: str, reason: str | None = None, after: Any = None) -> Audit:
    return Audit(WORKER, action, reason, target=batch.reference, scope=batch.scope, after=after)
