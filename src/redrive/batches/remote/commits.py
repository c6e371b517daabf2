"""The Commits of a remote batch: dispatched, failed for want of money, settled, released, cancelled, retried, charged
for afterwards.

Pure: each is made of a batch as it was read, and lands only if nobody has changed that batch since
(``RemoteBatch.moved``). So each happens once, whoever tries, and money and state are never apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from redrive.batches.names import (
    DISPATCH,
    DISPATCH_QUEUE,
    FEATURE,
    RELEASE,
    SETTLE,
    SETTLE_QUEUE,
    STEP_ATTEMPTS,
    BatchState,
    ItemState,
    item_kind,
)
from redrive.batches.remote.item_task import ItemTask, task_rows
from redrive.batches.remote.model import NO_MONEY, Counts, RemoteBatch, no_items
from redrive.ids import new_id
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.erase import ERASED
from redrive.kernel.joins import NewJoin
from redrive.kernel.machine import Event, Transition
from redrive.kernel.reactions import Rows
from redrive.kernel.task import NewTask, State
from redrive.ledger import movements
from redrive.webhooks import event_task
from redrive.webhooks.events import DEFAULT_ACCOUNT

UNENDED = (ItemState.PENDING, ItemState.PROCESSING)
ITEM_LOST = "BATCH_ITEM_LOST"
ITEM_LOST_WHY = "its task was gone before it had ended, so nobody knows what became of it"
WORKER = "worker"


def unstarted_items(batch: RemoteBatch, change: dict[str, Any]) -> Rows:
    """Returns what becomes of items whose turn has not come."""
    return Rows(FEATURE, "items_unstarted", ({"batch": str(batch.id), "round": batch.round, **change},))


def lost_items(batch: RemoteBatch, lost: int) -> list[Rows]:
    """Returns what fails the items that have not ended, and whose tasks will not end them."""
    place = {"batch": str(batch.id), "round": batch.round, "code": ITEM_LOST, "message": ITEM_LOST_WHY}
    return [Rows(FEATURE, "items_lost", (place,))] if lost else []


def item_counts(batch: RemoteBatch) -> Rows:
    """Returns what keeps how many items ended how, so that lists need not count them: last, when all have."""
    return Rows(FEATURE, "remote_counted", ({"id": str(batch.id)},))


def lost_as_failed(counts: Counts) -> tuple[Counts, int]:
    """Returns the counts with what has not ended as failed, and how many these are."""
    lost = sum(counts.in_round[state] for state in UNENDED)
    if not lost:
        return counts, 0
    gone = dict.fromkeys(UNENDED, 0)
    states = {**counts.states, **gone, ItemState.FAILED: counts.states[ItemState.FAILED] + lost}
    in_round = {**counts.in_round, **gone, ItemState.FAILED: counts.in_round[ItemState.FAILED] + lost}
    return replace(counts, states=states, in_round=in_round, unknown=counts.unknown + counts.begun, begun=0), lost


def notice(
    batch: RemoteBatch,
    state: BatchState,
    items: Mapping[ItemState, int],
    captured: int,
    released: int,
    reason: str | None = None,
    unknown: int = 0,
) -> NewTask:
    """Returns the task that tells the customer what became of a batch: once for each round, by its id. ``items`` always
    has every state: whoever reads it need not ask which are there. ``unknown``: those of them that ended without the
    provider's word."""
    data = {
        "batch": str(batch.id),
        "name": batch.name,
        "key": batch.key,
        "meta": batch.meta,
        "state": state.value,  # plain JSON, which is written without Pydantic
        "round": batch.round,
        "items": {item.value: n for item, n in (no_items() | dict(items)).items()},
        "unknown": unknown,
        "account": batch.account,
        "captured": captured,
        "released": released,
        "reason": reason or batch.reason,
    }
    return event_task(
        f"batch.{state}",
        data,
        batch.account or DEFAULT_ACCOUNT,
        f"batch-{batch.id}-{batch.round}",
        batch.webhook_url,
        None if (batch.scope or "").startswith(f"{ERASED}:") else batch.scope,
    )


def next_step(kind: str, batch: RemoteBatch, round: int | None = None) -> NewTask:
    """Returns the task that takes a batch a step further. It has no scope, since it holds nothing personal and money
    waits for it: an erasure leaves it alone."""
    return step_task(kind, str(batch.id), batch.round if round is None else round)


def step_task(kind: str, batch: str, round: int) -> NewTask:
    """Returns the same for a batch that is only being made. It has no key, which somebody else could take: that a step
    happens once is said by the row of the batch."""
    queue = DISPATCH_QUEUE if kind == DISPATCH else SETTLE_QUEUE
    payload = json.dumps({"batch": batch, "round": round})
    return NewTask(new_id(), kind, queue, payload, max_attempts=STEP_ATTEMPTS, own=True)


def dispatch(batch: RemoteBatch, chains: int) -> Commit:
    """Freezes the price of all items, opens the join that ends in the settlement, and brings the first items, each of
    which begins a chain. The price of a later round is frozen already."""
    settlement = next_step(SETTLE, batch)
    join = NewJoin(new_id(), on_complete=settlement)
    first = [
        ItemTask(str(batch.id), batch.round, at, batch.in_round, chains, item_kind(batch.provider))
        for at in range(1, min(chains, batch.in_round) + 1)
    ]
    tasks = [one.task(join.id, batch.scope) for one in first]
    total = batch.price_of(batch.in_round)
    money = None if batch.frozen else freeze_price(batch)
    moved = batch.moved(
        state=BatchState.PROCESSING,
        join_id=str(join.id),
        step_task=str(settlement.id),
        frozen=total,
        dispatched="now",
    )
    after = {"round": batch.round, "items": batch.in_round, "frozen": total}
    commit = Commit(
        joins=[join],
        enqueues=tasks,
        rows=[moved, task_rows(list(zip(first, tasks, strict=True)))],
        audits=[_audit(batch, "BATCH_DISPATCHED", after=after)],
    )
    return _with_money(commit, money)


def freeze_price(batch: RemoteBatch) -> movements.Movement | None:
    """Returns what freezes the price of the items of a batch's round; None of what costs nothing."""
    total = batch.price_of(batch.in_round)
    return movements.freeze(batch.account, total, batch.reference, batch.charge) if batch.account and total else None


def fail_unpaid(batch: RemoteBatch, available: int) -> Commit:
    """Fails a batch before anything of it was started: its account has too little."""
    total = batch.price_of(batch.in_round)
    why = f"account {batch.account} has {available}, and {batch.in_round} items at {batch.price} need {total}"
    changed = {"state": ItemState.FAILED, "code": NO_MONEY, "message": why, "type": "param_error"}
    return Commit(
        enqueues=[notice(batch, BatchState.FAILED, {ItemState.FAILED: batch.in_round}, 0, 0, why)],
        rows=[
            batch.moved(state=BatchState.FAILED, reason=why, ended="now"),
            unstarted_items(batch, changed),
            item_counts(batch),
        ],
        audits=[_audit(batch, "BATCH_FAILED", why)],
    )


def settle(batch: RemoteBatch, counts: Counts) -> Commit:
    """Captures the price of what succeeded, gives the rest back, and tells the customer. Nothing of it lands while an
    item may still succeed. What nobody will ever run is failed with it, and can be retried."""
    counts, lost = lost_as_failed(counts)
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
    # Nothing lands unless all items of the round have ended, and so many have succeeded.
    ended = {"id": str(batch.id), "round": batch.round, "completed": counts.in_round[ItemState.COMPLETED]}
    all_ended = Rows(FEATURE, "remote_round_ended", (ended,))
    after = {"state": state, "round": batch.round, "captured": captured, "released": released}
    sums = (batch.captured + captured, batch.released + released)
    commit = Commit(
        enqueues=[notice(batch, state, counts.states, *sums, unknown=counts.unknown)],
        rows=[moved, *lost_items(batch, lost), all_ended, item_counts(batch)],
        audits=[_audit(batch, "BATCH_SETTLED", after={**after, "lost": lost} if lost else after)],
    )
    return _with_money(commit, money)


def resume(batch: RemoteBatch) -> Commit:
    """Brings the next step of a batch whose own task for it is gone."""
    step = next_step(DISPATCH if batch.state is BatchState.QUEUED else SETTLE, batch)
    after = {"round": batch.round, "kind": step.kind, "frozen": batch.frozen}
    why = "the task of its next step was gone"
    return Commit(
        enqueues=[step],
        rows=[batch.moved(step_task=str(step.id))],
        audits=[_audit(batch, "BATCH_RESUMED", why, after=after)],
    )


def release(batch: RemoteBatch, items: int) -> Commit:
    """Gives back the price of cancelled items whose turn never came, before the others have ended."""
    back = min(batch.price_of(items), batch.frozen)
    money = None
    if batch.account and back:
        key = f"{batch.charge}:unstarted"
        money = movements.settle(batch.account, batch.reference, key, released=back)
    place = {"batch": str(batch.id), "round": batch.round}
    moved = batch.moved(frozen=batch.frozen - back, released=batch.released + back)
    commit = Commit(
        rows=[moved, Rows(FEATURE, "items_released", (place,))],
        audits=[_audit(batch, "BATCH_RELEASED", after={"items": items, "released": back})],
    )
    return _with_money(commit, money)


def cancel(batch: RemoteBatch, who: str, reason: str | None, counts: Counts) -> Commit:
    """Cancels what was not started. A batch that runs is settled when the others have ended."""
    audit = _audit(batch, "BATCH_CANCEL", reason, who=who)
    rest = unstarted_items(batch, {"state": ItemState.CANCELLED})
    if batch.state is BatchState.PROCESSING:
        moved = batch.moved(reason=reason, cancelled="now", cancelled_by=who)
        return Commit(enqueues=[next_step(RELEASE, batch)], rows=[moved, rest], audits=[audit])
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
    event = notice(batch, BatchState.CANCELLED, states, batch.captured, back, reason, unknown=counts.unknown)
    return _with_money(Commit(enqueues=[event], rows=[moved, rest, item_counts(batch)], audits=[audit]), money)


def retry(batch: RemoteBatch, failed: int, who: str, reason: str | None, put_away: Commit) -> Commit:
    """Puts so many failed items of a settled batch into a new round, and freezes their price: with too little nothing
    of it lands, nor where a provider's word about one of them has come meanwhile. What failed in the last round is put
    away with it."""
    round = batch.round + 1
    step = next_step(DISPATCH, batch, round)
    money = freeze_price(replace(batch, round=round, in_round=failed))
    frozen = 0 if money is None else batch.price_of(failed)
    moved = batch.moved(
        state=BatchState.QUEUED,
        reason=None,
        round=round,
        in_round=failed,
        step_task=str(step.id),
        frozen=frozen,
        dispatched="no",
        settled="no",
        cancelled="no",
        cancelled_by=None,
    )
    place = {"batch": str(batch.id), "round": round, "items": failed}
    again = [Rows(FEATURE, "items_again", (place,)), Rows(FEATURE, "items_again_counted", (place,))]
    after = {"round": round, "items": failed, "frozen": frozen}
    audit = _audit(batch, "BATCH_RETRY_FAILED", reason, after, who)
    commit = replace(put_away, enqueues=[step], rows=[moved, *again], audits=[audit, *put_away.audits])
    return _with_money(commit, money)


def charge(batch: RemoteBatch, items: Sequence[Mapping[str, Any]], who: str, reason: str, counts: Counts) -> Commit:
    """Charges for items of a settled batch that ended here, and whose jobs ran all the same: from now on they are
    completed, in a round of their own, whose price is frozen and captured at once. The customer is told. With too
    little nothing of it lands, nor where one of them was paid for meanwhile."""
    now = replace(batch, round=batch.round + 1, in_round=len(items))
    amount = batch.price_of(len(items))
    frozen = captured = None
    if batch.account and amount:
        frozen = movements.freeze(batch.account, amount, now.reference, now.charge, reason=reason)
        captured = movements.settle(batch.account, now.reference, now.charge, captured=amount, reason=reason)
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
    audit = _audit(batch, "BATCH_CHARGE", reason, after, who)
    why = f"its job ran all the same: charged in round {now.round} of batch {batch.id}"
    commit = Commit(
        enqueues=[notice(now, state, states, batch.captured + amount, batch.released, unknown=counts.unknown)],
        transitions=[
            forget_task(item["task"], why, who) for item in items if item["state"] == ItemState.FAILED and item["task"]
        ],
        rows=[moved, Rows(FEATURE, "items_charged", places), item_counts(batch)],
        audits=[audit],
    )
    return _with_money(commit, frozen, captured)


def forget_task(task: object, why: str, who: str = WORKER) -> Transition:
    """Returns what takes the task of an item that has not failed after all from those that are failed."""
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


def _with_money(commit: Commit, *money: movements.Movement | None) -> Commit:
    """Returns a Commit that moves this money, too; None is none."""
    moved = [one for one in money if one is not None]
    postings = [posting for one in moved for posting in one.postings]
    return replace(commit, postings=postings, rows=[*commit.rows, *(rows for one in moved for rows in one.rows)])


def _final(batch: RemoteBatch, counts: Counts) -> BatchState:
    if batch.cancelled_at is not None:
        return BatchState.CANCELLED
    return BatchState.COMPLETED if counts.states[ItemState.COMPLETED] else BatchState.FAILED


def _audit(batch: RemoteBatch, action: str, reason: str | None = None, after: Any = None, who: str = WORKER) -> Audit:
    return Audit(who, action, reason, target=batch.reference, scope=batch.scope, after=after)
