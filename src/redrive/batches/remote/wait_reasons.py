"""Says what keeps a remote batch from going on."""

from __future__ import annotations

import shlex

from redrive.batches.batch import BatchState
from redrive.batches.remote.model import RemoteBatch
from redrive.batches.remote.names import DISPATCH, RELEASE, SETTLE, item_kind
from redrive.batches.wait_reasons import WAITING, reasons_of
from redrive.feature import Store
from redrive.kernel.reads import Query
from redrive.ledger.accounts import available
from redrive.ops.why import Reason

MONEY = "money"  # the code of the reason that the account has too little


async def remote_waits_for(store: Store, batch: RemoteBatch) -> list[Reason]:
    """Returns what its items wait for, or the step that is next. Of a step one task is looked at, perhaps of another
    batch: what holds up one of its kind holds up all."""
    short = await _money(store, batch)
    if batch.settled:
        return short
    queries = [Query(WAITING, step, limit=1, documents=0) for step in (RELEASE, SETTLE)]
    if batch.state is BatchState.QUEUED:
        queries = [Query(WAITING, DISPATCH, limit=1, documents=0)]
    elif batch.join_id is not None:
        queries.append(Query(WAITING, item_kind(batch.provider), join=str(batch.join_id), limit=1, documents=0))
    return [*short, *await reasons_of(store, [task for query in queries for task in await store.find(query)])]


async def _money(store: Store, batch: RemoteBatch) -> list[Reason]:
    """Returns that the account cannot pay for a batch: for one whose price is frozen when it is dispatched, and for one
    that has failed for that."""
    needed = batch.price_of(batch.in_round) - batch.frozen
    if batch.account is None or needed <= 0 or batch.dispatched_at is not None:
        return []
    has = await store.balance(available(batch.account))
    if has >= needed or batch.state not in (BatchState.QUEUED, BatchState.FAILED):
        return []
    text = f"account {batch.account} has {has} to spend, and this needs {needed}"
    fails = ": it fails when it is dispatched, unless that is paid in before"
    fix = f"redrive ledger credit {shlex.quote(batch.account)} {needed - has} --reason '…'"
    return [Reason(MONEY, text + (fails if batch.state is BatchState.QUEUED else ": a retry is refused"), fix)]
