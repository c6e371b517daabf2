"""Says what keeps a batch from going on: a pause, an open circuit, no worker; at a provider its money, and each of its
items."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from redrive.batches.names import DISPATCH, FEATURE, RELEASE, SETTLE, BatchState, item_kind
from redrive.batches.remote.in_flight import in_flight
from redrive.batches.remote.model import RemoteBatch
from redrive.batches.remote.reconcile import last_look_until
from redrive.feature import State, Store, Task
from redrive.kernel.ports.reads import get_task
from redrive.kernel.reads import Query
from redrive.ledger.accounts import available
from redrive.ops.why import Reason, why

# Reasons that time alone does not cure. What waits for its turn, its next poll or a limit is on its way.
LASTING = ("paused", "circuit", "no_worker", "unknown_feature", "handed_back", "unhandled")
WAITING = (State.QUEUED, State.DELAYED, State.PAUSED)
LOOKED_AT = 50  # waiting tasks; those of one kind and queue wait for the same
MONEY = "money"  # the code of the reason that the account has too little
START, UNSEEN, IN_FLIGHT, TURN, JOB = "start", "poll", "in_flight", "turn", "job"
LAST_LOOK = "last_look"
ORDINARY = (TURN, JOB)  # what time alone cures


async def tasks_wait_for(store: Store, join: object) -> list[Reason]:
    """Returns what the waiting tasks of a join wait for, by the latest of them."""
    return await reasons_of(store, await store.find(Query(WAITING, join=str(join), limit=LOOKED_AT, documents=0)))


async def reasons_of(store: Store, tasks: Sequence[Task]) -> list[Reason]:
    """Returns the lasting reasons of these tasks, each once."""
    alike = {(task.kind, task.queue, task.group): task for task in tasks}
    found = [reason for task in alike.values() for reason in await why(store, task) if reason.code in LASTING]
    return list({reason.text: reason for reason in found}.values())


async def remote_waits_for(store: Store, batch: RemoteBatch, *, words: bool) -> list[Reason]:
    """Returns what its items wait for, each of them, or the step that is next. Of a step one task is looked at, perhaps
    of another batch: what holds up one of its kind holds up all. ``words``: what the provider said is quoted. Figures
    are those that workers left in the store: whoever asks may have other settings."""
    short = await _money(store, batch)
    if batch.settled:
        return short
    queries = [Query(WAITING, step, limit=1, documents=0) for step in (RELEASE, SETTLE)]
    if batch.state is BatchState.QUEUED:
        queries = [Query(WAITING, DISPATCH, limit=1, documents=0)]
    elif batch.join_id is not None:
        queries.append(Query(WAITING, item_kind(batch.provider), join=str(batch.join_id), limit=1, documents=0))
    held = await reasons_of(store, [task for query in queries for task in await store.find(query)])
    return [*short, *held, *await _items(store, batch, words)]


async def _items(store: Store, batch: RemoteBatch, words: bool) -> list[Reason]:
    """Returns what the items wait for that have not ended, those that stand still first."""
    rows = await store.sql.feature_rows(FEATURE, "remote_waiting", str(batch.id), batch.round)
    if batch.state is BatchState.QUEUED:
        return []
    if not rows:
        return await _last_look(store, batch)
    found = {row["what"]: row for row in rows}
    told = {
        "start": (START, "{n} could not be started yet, the first is item {first}{message}"),
        "unseen": (UNSEEN, "{n} could not be looked at the last time, the first is item {first}{message}"),
        "flight": (IN_FLIGHT, "{n} for a place: " + (await _flight(store, batch) if "flight" in found else "")),
        "due": (TURN, "{n} to be started"),
        "turn": (TURN, "{n} for their turn: they come as others are started (BATCH_WORKER_MAX_START_TASKS_PER_BATCH)"),
        "job": (JOB, f"{{n}} for their jobs at {batch.provider}"),
    }
    return [
        Reason(code, text.format(n=found[what]["n"], first=found[what]["first"], message=_quoted(found[what], words)))
        for what, (code, text) in told.items()
        if what in found
    ]


async def _last_look(store: Store, batch: RemoteBatch) -> list[Reason]:
    """Returns that the settlement waits for the provider's word about items that have ended without it."""
    (row,) = await store.sql.feature_rows(FEATURE, "unknown_items", str(batch.id))
    if not row["n"]:
        return []
    kind = item_kind(batch.provider)
    down = any(one.open and kind in one.kinds for one in await store.circuits())
    why = f"the circuit of {batch.provider} is open" if down else f"{batch.provider} is asked once more"
    step = None if batch.step_task is None else await get_task(store, batch.step_task)
    until = last_look_until(None if step is None else step.memo)
    when = "in the end" if until is None else f"at {until:%Y-%m-%d %H:%M:%S} UTC"
    then = f"{when} it is settled without (BATCH_LAST_LOOK_SECONDS)"
    return [Reason(LAST_LOOK, f"a last look at {row['n']} that ended without the provider's word: {why}; {then}")]


def _quoted(row: Mapping[str, Any], words: bool) -> str:
    return f": {row['message']}" if words and row["message"] else ""


async def _flight(store: Store, batch: RemoteBatch) -> str:
    flying, here, most = await in_flight(store, batch.id)
    bounds = []
    if batch.max_in_flight is not None and here >= batch.max_in_flight:
        bounds.append(f"{here} of {batch.max_in_flight} jobs of this batch are in flight (max_in_flight)")
    if most is not None and flying >= most:
        bounds.append(f"{flying} of {most} jobs at {batch.provider} are in flight (BATCH_MAX_IN_FLIGHT)")
    return " and ".join(bounds).replace("{", "{{").replace("}", "}}") or "one has just become free"


async def _money(store: Store, batch: RemoteBatch) -> list[Reason]:
    """Returns that the account cannot pay for a batch: for one whose price is frozen when it is dispatched, and for one
    that has failed for that."""
    needed = batch.price_of(batch.in_round) - batch.frozen
    if batch.account is None or needed <= 0 or batch.dispatched_at is not None:
        return []
    has = await store.sql.balance(available(batch.account))
    if has >= needed or batch.state not in (BatchState.QUEUED, BatchState.FAILED):
        return []
    text = f"account {batch.account} has {has} to spend, and this needs {needed}"
    fails = ": it fails when it is dispatched, unless that is paid in before"
    fix = f"redrive ledger credit {shlex.quote(batch.account)} {needed - has} --reason '…'"
    return [Reason(MONEY, text + (fails if batch.state is BatchState.QUEUED else ": a retry is refused"), fix)]
