"""The Commits of a remote batch: dispatched, failed for want of money, settled, released, cancelled, retried,
charged for afterwards.

Pure: each is made of a batch as it was read, and lands only if nobody has changed that batch since
(``RemoteBatch.moved``). So each happens once, whoever tries, and money and state are never apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from redrive.batches.batch import FEATURE, BatchState, ItemState
from redrive.batches.remote.end_items import counted, ended, lost_items, unstarted, without_lost
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
from redrive.batches.remote.webhook_notice import notice
from redrive.ids import new_id
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.joins import NewJoin
from redrive.kernel.machine import Event, Transition
from redrive.kernel.reactions import Rows
from redrive.kernel.task import NewTask, State
from redrive.ledger import movements

WORKER = "worker"


def phase_task(kind: str, batch: RemoteBatch, round: int | None = None) -> NewTask:
    """Returns the task that takes a batch a step further. It has no scope, since it holds nothing personal and money
    waits for it: an erasure leaves it alone."""
    return step_task(kind, str(batch.id), batch.round if round is None else round)


def step_task(kind: str, batch: str, round: int) -> NewTask:
    """Returns the same for a batch that is only being made. It has no key, which somebody else could take: that a step
    happens once is said by the row of the batch."""
    queue = DISPATCH_QUEUE if kind == DISPATCH else SETTLE_QUEUE
    payload = json.dumps({"batch": batch, "round": round})
    return NewTask(new_id(), kind, queue, payload, max_attempts=STEP_ATTEMPTS, own=True)


def dispatched(batch: RemoteBatch, lanes: int) -> Commit:
    """Freezes the price of all items, opens the join that ends in the settlement, and brings the first items. That of a
    later round is frozen already."""
    settle = phase_task(SETTLE, batch)
    join = NewJoin(new_id(), on_complete=settle)
    first = [
        Lane(str(batch.id), batch.round, at, batch.in_round, lanes, item_kind(batch.provider))
        for at in range(1, min(lanes, batch.in_round) + 1)
    ]
    tasks = [lane.task(join.id, batch.scope) for lane in first]
    total = batch.price_of(batch.in_round)
    money = None if batch.frozen else charged(batch)
    moved = batch.moved(
        state=BatchState.PROCESSING,
        join_id=str(join.id),
        step_task=str(settle.id),
        frozen=total,
        dispatched="now",
    )
    return Commit(
        joins=[join],
        enqueues=tasks,
        postings=() if money is None else money.postings,
        rows=[moved, brought(list(zip(first, tasks, strict=True))), *(() if money is None else money.rows)],
        audits=[
            _said(batch, "BATCH_DISPATCHED", after={"round": batch.round, "items": batch.in_round, "frozen": total})
        ],
    )


def charged(batch: RemoteBatch) -> movements.Movement | None:
    """Returns what freezes the price of the items of a batch's round; None of what costs nothing."""
    total = batch.price_of(batch.in_round)
    return movements.freeze(batch.account, total, batch.reference, batch.charge) if batch.account and total else None


def unaffordable(batch: RemoteBatch, available: int) -> Commit:
    """Fails a batch before anything of it was started: its account has too little."""
    total = batch.price_of(batch.in_round)
    why = f"account {batch.account} has {available}, and {batch.in_round} items at {batch.price} need {total}"
    changed = {"state": ItemState.FAILED, "code": NO_MONEY, "message": why, "type": "param_error"}
    return Commit(
        enqueues=[notice(batch, BatchState.FAILED, {ItemState.FAILED: batch.in_round}, 0, 0, why)],
        rows=[
            batch.moved(state=BatchState.FAILED, reason=why, ended="now"),
            unstarted(batch, changed),
            counted(batch),
        ],
        audits=[_said(batch, "BATCH_FAILED", why)],
    )


def settled(batch: RemoteBatch, counts: Counts) -> Commit:
    """Captures the price of what succeeded, gives the rest back, and tells the customer. Nothing of it lands while an
    item may still succeed. What nobody will ever run is failed with it, and can be retried."""
    counts, lost = without_lost(counts)
    captured = min(batch.price_of(counts.in_round[ItemState.COMPLETED]), batch.frozen)
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
        enqueues=[
            notice(
                batch,
                state,
                counts.states,
                batch.captured + captured,
                batch.released + released,
                unknown=counts.unknown,
            )
        ],
        postings=() if money is None else money.postings,
        rows=[
            moved,
            *lost_items(batch, lost),
            ended(batch, counts),
            counted(batch),
            *(() if money is None else money.rows),
        ],
        audits=[_said(batch, "BATCH_SETTLED", after={**after, "lost": lost} if lost else after)],
    )


def resumed(batch: RemoteBatch) -> Commit:
    """Brings the next step of a batch whose own task for it is gone."""
    step = phase_task(DISPATCH if batch.state is BatchState.QUEUED else SETTLE, batch)
    after = {"round": batch.round, "kind": step.kind, "frozen": batch.frozen}
    why = "the task of its next step was gone"
    return Commit(
        enqueues=[step],
        rows=[batch.moved(step_task=str(step.id))],
        audits=[_said(batch, "BATCH_RESUMED", why, after=after)],
    )


def released(batch: RemoteBatch, items: int) -> Commit:
    """Gives back the price of cancelled items whose turn never came, before the others have ended."""
    back = min(batch.price_of(items), batch.frozen)
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


def cancelled(batch: RemoteBatch, who: str, reason: str | None, counts: Counts) -> Commit:
    """Cancels what was not started. A batch that runs is settled when the others have ended."""
    audit = Audit(who, "BATCH_CANCEL", reason, target=batch.reference, scope=batch.scope)
    rest = unstarted(batch, {"state": ItemState.CANCELLED})
    if batch.state is BatchState.PROCESSING:
        moved = batch.moved(reason=reason, cancelled="now", cancelled_by=who)
        return Commit(enqueues=[phase_task(RELEASE, batch)], rows=[moved, rest], audits=[audit])
    back = batch.released + batch.frozen
    money = None
    if batch.account and batch.frozen:
        money = movements.settle(batch.account, batch.reference, batch.charge, released=batch.frozen)
    moved = batch.moved(
        state=BatchState.CANCELLED,
        reason=reason,
        frozen=0,
        released=back,
        cancelled="now",
        cancelled_by=who,
        settled="now",
    )
    waited = counts.states[ItemState.PENDING]
    states = {
        **counts.states,
        ItemState.PENDING: 0,
        ItemState.CANCELLED: counts.states[ItemState.CANCELLED] + waited,
    }
    told = notice(batch, BatchState.CANCELLED, states, batch.captured, back, reason, unknown=counts.unknown)
    return Commit(
        enqueues=[told],
        postings=() if money is None else money.postings,
        rows=[moved, rest, counted(batch), *(() if money is None else money.rows)],
        audits=[audit],
    )


def retried(batch: RemoteBatch, failed: int, who: str, reason: str | None, put_away: Commit) -> Commit:
    """Puts so many failed items of a settled batch into a new round, and freezes their price: with too little nothing
    of it lands, nor where a provider's word about one of them has come meanwhile. What failed in the last round is put
    away with it."""
    round = batch.round + 1
    dispatch = phase_task(DISPATCH, batch, round)
    money = charged(replace(batch, round=round, in_round=failed))
    moved = batch.moved(
        state=BatchState.QUEUED,
        reason=None,
        round=round,
        in_round=failed,
        step_task=str(dispatch.id),
        frozen=0 if money is None else batch.price_of(failed),
        dispatched="no",
        settled="no",
        cancelled="no",
        cancelled_by=None,
    )
    place = {"batch": str(batch.id), "round": round, "items": failed}
    again = [Rows(FEATURE, "items_again", (place,)), Rows(FEATURE, "items_again_counted", (place,))]
    audit = Audit(
        who,
        "BATCH_RETRY_FAILED",
        reason,
        target=batch.reference,
        scope=batch.scope,
        after={"round": round, "items": failed, "frozen": 0 if money is None else batch.price_of(failed)},
    )
    return replace(
        put_away,
        enqueues=[dispatch],
        postings=() if money is None else money.postings,
        rows=[moved, *again, *(() if money is None else money.rows)],
        audits=[audit, *put_away.audits],
    )


def charged_late(
    batch: RemoteBatch, items: Sequence[Mapping[str, Any]], who: str, reason: str, counts: Counts
) -> Commit:
    """Charges for items of a settled batch that ended here, and whose jobs ran all the same: from now on they are
    completed, in a round of their own, whose price is frozen and captured at once. The customer is told. With too
    little nothing of it lands, nor where one of them was paid for meanwhile."""
    now = replace(batch, round=batch.round + 1, in_round=len(items))
    amount = batch.price_of(len(items))
    money: tuple[movements.Movement, ...] = ()
    if batch.account and amount:
        money = (
            movements.freeze(batch.account, amount, now.reference, now.charge, reason=reason),
            movements.settle(batch.account, now.reference, now.charge, captured=amount, reason=reason),
        )
    states = dict(counts.states)
    for item in items:
        states[ItemState(item["state"])] -= 1
    states[ItemState.COMPLETED] = states.get(ItemState.COMPLETED, 0) + len(items)
    state = BatchState.CANCELLED if batch.state is BatchState.CANCELLED else BatchState.COMPLETED
    moved = batch.moved(
        state=state,
        reason=batch.reason if state is BatchState.CANCELLED else None,
        round=now.round,
        in_round=now.in_round,
        captured=batch.captured + amount,
        settled="now",
    )
    places = tuple(
        {"batch": str(batch.id), "n": item["n"], "round": now.round, "ordinal": at} for at, item in enumerate(items, 1)
    )
    after = {"round": now.round, "items": [item["n"] for item in items], "captured": amount}
    audit = Audit(who, "BATCH_CHARGE", reason, target=batch.reference, scope=batch.scope, after=after)
    return Commit(
        enqueues=[notice(now, state, states, batch.captured + amount, batch.released, unknown=counts.unknown)],
        transitions=[
            _put_away(item["task"], batch, who) for item in items if item["state"] == ItemState.FAILED and item["task"]
        ],
        postings=[posting for one in money for posting in one.postings],
        rows=[
            moved,
            Rows(FEATURE, "items_charged", places),
            counted(batch),
            *(rows for one in money for rows in one.rows),
        ],
        audits=[audit],
    )


def _put_away(task: object, batch: RemoteBatch, who: str) -> Transition:
    """Returns what takes the task of an item that is completed after all from those that are failed."""
    why = f"its job ran all the same: charged in round {batch.round + 1} of batch {batch.id}"
    return Transition(
        UUID(str(task)),
        Event.CANCEL,
        State.CANCELLED,
        actor=who,
        reason=why,
        action="TASK_FORGET",
        forgotten=True,
        sources=(State.FAILED,),
    )


def _final(batch: RemoteBatch, counts: Counts) -> BatchState:
    if batch.cancelled_at is not None:
        return BatchState.CANCELLED
    return BatchState.COMPLETED if counts.states[ItemState.COMPLETED] else BatchState.FAILED


def _said(batch: RemoteBatch, action: str, reason: str | None = None, after: Any = None) -> Audit:
    return Audit(WORKER, action, reason, target=batch.reference, scope=batch.scope, after=after)
