"""Applies a Commit: in a transaction of its own, or in the caller's."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any
from uuid import UUID

import asyncpg

from redrive.errors import MayHaveLanded, RedriveError, StoreBlocked, StoreUnavailable
from redrive.kernel.applied import Applied
from redrive.kernel.audit import FOREIGN, UNUSABLE, BulkAction
from redrive.kernel.circuit import SetCircuit
from redrive.kernel.commit import CancelRequest, CloseJoin, Commit, Control, Declare, Drain, Hold, KnownNames, Limit
from redrive.kernel.records import Put
from redrive.kernel.retry_guard import RetryWithheld, Withheld
from redrive.kernel.task import Enqueued
from redrive.stores.features import Features, with_callbacks
from redrive.stores.postgres import codec
from redrive.stores.postgres.bad_rows import about_a_row, settle_in_parts
from redrive.stores.postgres.enqueue import enqueue
from redrive.stores.postgres.errors import patiently
from redrive.stores.postgres.pool import Connection, Pool
from redrive.stores.postgres.settle import landed_before, settle
from redrive.stores.postgres.writes import (
    add_audits,
    add_conclusion,
    close_joins,
    erase,
    erase_callbacks,
    open_joins,
    opened_before,
    post,
    write_rows,
)
from redrive.stores.refusals import changed_meanwhile, circuit_changed, may_have_landed
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "statements.sql")
# How long moves wait for a row that somebody's open transaction holds: among many, alone, and when those are looked for
# that wait.
PATIENCE, OPERATORS_PATIENCE, NO_PATIENCE = "250ms", "5s", "20ms"
MOST_DEADLOCKS = 4
Held = Mapping[UUID, Withheld]


async def commit_patiently(pool: Pool, commit: Commit, features: Features, *, again: bool) -> Applied:
    """Applies a Commit in a transaction of its own; an interruption is ridden out where a repeat can do no harm: before
    the commit was sent, or where it can be told that it landed."""
    if commit.all_or_none:
        final = () if commit.recognisable else (MayHaveLanded,)
        return await patiently(lambda more: _commit(pool, commit, features, more), again, final)
    return await _commit(pool, commit, features, again)


async def _commit(pool: Pool, commit: Commit, features: Features, again: bool) -> Applied:
    """Applies it; what features withhold from a retry is found by the way, and left out of the next try."""
    withheld: dict[UUID, Withheld] = {}
    while True:
        try:
            return await _with_care(pool, commit, features, again, withheld)
        except RetryWithheld as found:
            withheld |= found.tasks


async def _with_care(pool: Pool, commit: Commit, features: Features, again: bool, withheld: Held) -> Applied:
    try:
        return await _run(pool, commit, features, again, withheld)
    except RedriveError as error:
        apart = about_a_row(error) or (isinstance(error, StoreBlocked) and _settles_many(commit))
        if not commit.transitions or not apart:
            raise
    return await _run(pool, commit, features, again, withheld, careful=pool.where)


def _settles_many(commit: Commit) -> bool:
    """Returns whether it settles under leases, and can go on without some of them: recovery does."""
    return len(commit.transitions) > 1 and all(t.rule.fenced for t in commit.transitions)


async def _run(
    pool: Pool, commit: Commit, features: Features, again: bool, withheld: Held, careful: str | None = None
) -> Applied:
    sent = False

    async def work(connection: Connection) -> Applied:
        nonlocal sent
        if commit.transitions:
            patience = PATIENCE if _settles_many(commit) else OPERATORS_PATIENCE
            await connection.execute(SQL["patience"], patience if careful is None else NO_PATIENCE)
        applied = await apply(connection, commit, features, again=again, careful=careful, withheld=withheld)
        sent = True
        return applied

    for turn in range(MOST_DEADLOCKS, -1, -1):
        try:
            async with pool.posting if commit.postings else nullcontext():
                applied: Applied = await pool.run(work, atomic=True)
            return applied
        except StoreUnavailable as error:
            if sent:
                raise may_have_landed(error) from error
            if not turn or not isinstance(error.__cause__, asyncpg.DeadlockDetectedError):
                raise
        # Nothing of it has happened, and whoever had the other half goes on.
        await asyncio.sleep(random.uniform(0.01, 0.1))  # noqa: S311 (so that two do not meet again; no secret)
    raise AssertionError("unreachable")


async def apply(
    connection: Connection,
    commit: Commit,
    features: Features,
    *,
    again: bool = False,
    careful: str | None = None,
    withheld: Held | None = None,
) -> Applied:
    """Applies everything of a Commit in the caller's transaction. ``careful``: one of its rows was refused before, by
    the database of this name. ``withheld``: tasks that are not to be retried, by an earlier try."""
    applied = Applied(withheld=dict(withheld or {}))
    if again and await opened_before(connection, commit.joins):
        applied.enqueued = [Enqueued(task.id) for task in commit.enqueues]
        return applied
    callbacks = await erase_callbacks(connection, commit.erase)
    await open_joins(connection, commit.joins)
    if commit.enqueues:
        applied.enqueued = await enqueue(connection, commit.enqueues, again)
        commit.check_conflicts(applied.enqueued)
    await close_joins(connection, [join.id for join in commit.joins if not join.open])
    if commit.transitions:
        await _settle(connection, commit, features, applied, again, careful)
    if commit.bulk is not None:
        await _conclude(connection, commit.bulk, commit, features, applied)
    for control in commit.controls:
        await _control(connection, control, applied)
    # In one call, which locks them in one order.
    await close_joins(connection, [control.join_id for control in commit.controls if isinstance(control, CloseJoin)])
    for fire in commit.fires:
        if await connection.fetchval(SQL["fire"], fire.name, fire.seen, fire.next_at):
            applied.fired.add(fire.name)
            if fire.tasks:
                await enqueue(connection, fire.tasks, False, verb="add")
    applied.repeated |= await post(connection, commit.postings)
    await write_rows(connection, commit.rows, features)
    if commit.audits:
        await add_audits(connection, commit.audits)
    if commit.pruned:
        applied.pruned = {row["id"] for row in await connection.fetch(SQL["forget_audit"], list(commit.pruned))}
    if commit.erase is not None:
        applied.erased = with_callbacks(await erase(connection, commit.erase, features), callbacks)
    if commit.conclusion is not None and (rows := commit.conclusion(applied)):
        applied.concluded = await add_conclusion(connection, rows)
    for put in sorted(commit.puts, key=lambda put: (put.collection, put.id)):  # one order for all: no deadlocks
        await _put(connection, put, applied)
    return applied


async def _settle(
    connection: Connection, commit: Commit, features: Features, applied: Applied, again: bool, careful: str | None
) -> None:
    wanted = [t for t in commit.transitions if t.task_id not in applied.withheld]
    if careful is None:
        moved = await settle(connection, wanted, features, instead=applied.instead)
    else:
        moved = await settle_in_parts(connection, wanted, features, applied, careful)
    lost = [t for t in commit.transitions if t.task_id not in moved]
    if lost and again:
        before = await landed_before(connection, lost)
        lost = [t for t in lost if t.task_id not in before]
    applied.lost = {t.task_id for t in lost}


async def _put(connection: Connection, put: Put, applied: Applied) -> None:
    body = put.resolve(applied)
    if body is None:
        return
    args = [put.collection, put.id, put.state, json.dumps(body), put.keep]
    done = await (
        connection.fetchval(SQL["put"], *args, put.version)
        if put.version
        else connection.fetchval(SQL["put_new"], *args)
    )
    if done is None:
        raise changed_meanwhile(put)


def _state(row: Any, features: Features) -> str:
    if row["feature"] is not None and row["feature"] not in features.reactions:
        return FOREIGN
    return "erased" if row["erased"] else str(row["state"])


async def _conclude(
    connection: Connection, bulk: BulkAction, commit: Commit, features: Features, applied: Applied
) -> None:
    """Adds an audit row for each task that was left alone, with the reason, and the summary of the bulk action."""
    lost = [t.task_id for t in commit.transitions if t.task_id in applied.lost]
    found = await connection.fetch(SQL["statuses"], lost) if lost else []
    states = {row["id"]: _state(row, features) for row in found}
    applied.skipped = {task_id: UNUSABLE if task_id in applied.refused else states.get(task_id) for task_id in lost}
    applied.skipped |= applied.withheld
    audits = bulk.audits(len(commit.transitions) - len(lost), applied.skipped)
    await add_audits(connection, audits)


async def _control(connection: Connection, control: Control, applied: Applied) -> None:
    match control:
        case Hold(target, name, on, actor, reason):
            if not await connection.fetchval(SQL["hold"], target.value, name, on, actor, reason):
                applied.repeated.add(f"{target.value}:{name}")
        case Limit(kind, concurrency, rate_ms, actor):
            await connection.fetchval(SQL["limit"], kind, concurrency, rate_ms, actor)
        case SetCircuit():
            await _set_circuit(connection, control)
        case CancelRequest(task_id, actor, reason):
            match await connection.fetchval(SQL["cancel"], task_id, actor, reason):
                case None:
                    applied.lost.add(task_id)
                case "repeated":
                    applied.asked_before.add(task_id)
        case Drain(worker_id, actor, reason):
            if not await connection.fetchval(SQL["drain"], worker_id, actor, reason):
                applied.repeated.add(f"worker:{worker_id}")
        case Declare(owner, schedules):
            await connection.fetchval(SQL["declare"], owner, codec.schedules(schedules))
        case KnownNames(queues, kinds, most, attempts):
            await connection.fetchval(SQL["know_names"], list(queues), list(kinds), most, json.dumps(dict(attempts)))
        case CloseJoin():
            pass  # all of them together


async def _set_circuit(connection: Connection, new: SetCircuit) -> None:
    values = (new.open, new.wait, new.reason, new.actor, new.failed_probes, new.opened)
    if not await connection.fetchval(SQL["circuit"], new.name, new.version, list(new.kinds), *values):
        raise circuit_changed(new.name)
