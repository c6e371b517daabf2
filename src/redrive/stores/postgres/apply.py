"""A Commit, in the caller's transaction."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from redrive.errors import ChangedMeanwhile
from redrive.kernel.applied import Applied
from redrive.kernel.audit import FOREIGN, UNUSABLE, BulkAction
from redrive.kernel.commit import CancelRequest, CloseJoin, Commit, Control, Declare, Hold, Limit
from redrive.kernel.erase import Erase
from redrive.kernel.records import Put
from redrive.stores.features import Features
from redrive.stores.postgres import codec
from redrive.stores.postgres.bad_rows import settle_in_parts
from redrive.stores.postgres.effects import post, write_rows
from redrive.stores.postgres.enqueue import enqueue
from redrive.stores.postgres.pool import Connection
from redrive.stores.postgres.settle import landed_before, settle
from redrive.stores.rows import audit as as_audit
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "statements.sql")


async def apply(
    connection: Connection, commit: Commit, features: Features, *, again: bool = False, careful: str | None = None
) -> Applied:
    """Everything of a Commit. ``careful``: one of its rows was refused before, by the database of this name."""
    applied = Applied()
    await _enqueue(connection, commit, applied, again)
    if commit.transitions:
        await _settle(connection, commit, features, applied, again, careful)
    if commit.bulk is not None:
        await _conclude(connection, commit.bulk, commit, features, applied)
    for control in commit.controls:
        await _control(connection, control, applied)
    for fire in commit.fires:
        if await connection.fetchval(SQL["fire"], fire.name, fire.seen, fire.next_at):
            applied.fired.add(fire.name)
            if fire.tasks:
                await enqueue(connection, fire.tasks, False, verb="add")
    for posting in commit.postings:
        if not await post(connection, posting):
            applied.repeated.add(posting.key)
    await write_rows(connection, commit.rows, features)
    if commit.audits:
        await connection.execute(SQL["audit"], codec.audits(commit.audits))
    if commit.pruned:
        applied.pruned = {row["id"] for row in await connection.fetch(SQL["forget_audit"], list(commit.pruned))}
    if commit.erase is not None:
        applied.erased = await _erase(connection, commit.erase)
    if commit.conclusion is not None and (rows := commit.conclusion(applied)):
        added = [row["id"] for row in await connection.fetch(SQL["audit"], codec.audits(rows))]
        applied.concluded = [as_audit(row) for row in await connection.fetch(SQL["audit_rows"], added)]
    for put in sorted(commit.puts, key=lambda put: (put.collection, put.id)):  # one order for all: no deadlocks
        await _put(connection, put, applied)
    return applied


async def _enqueue(connection: Connection, commit: Commit, applied: Applied, again: bool) -> None:
    if commit.joins:
        await connection.execute(SQL["open_joins"], codec.joins(commit.joins))
    if commit.enqueues:
        applied.enqueued = await enqueue(connection, commit.enqueues, again)
        commit.check_conflicts(applied.enqueued)
    for join in commit.joins:  # one that got no members has ended
        if not join.open:
            await connection.execute(SQL["close_join"], join.id)


async def _settle(
    connection: Connection, commit: Commit, features: Features, applied: Applied, again: bool, careful: str | None
) -> None:
    if careful is None:
        moved = await settle(connection, commit.transitions, features)
    else:
        moved = await settle_in_parts(
            connection, commit.transitions, partial(settle, features=features), applied.refused, careful
        )
    lost = [t for t in commit.transitions if t.task_id not in moved]
    if lost and again:
        before = await landed_before(connection, lost)
        lost = [t for t in lost if t.task_id not in before]
    applied.lost = {t.task_id for t in lost}


async def _erase(connection: Connection, erase: Erase) -> dict[str, int]:
    numbers, digests = list(erase.audit), list(erase.audit.values())
    done = await connection.fetchval(
        SQL["erase"], list(erase.task_ids), erase.tombstone, numbers, digests, erase.scope, json.dumps(erase.holds),
        list(erase.telling),
    )  # fmt: skip
    return {place: n for place, n in json.loads(done).items() if n}


async def _put(connection: Connection, put: Put, applied: Applied) -> None:
    body = put.written(applied)
    if body is None:
        return
    args = [put.collection, put.id, put.state, json.dumps(body), put.keep]
    done = await (
        connection.fetchval(SQL["put"], *args, put.version) if put.version
        else connection.fetchval(SQL["put_new"], *args)
    )  # fmt: skip
    if done is None:
        raise ChangedMeanwhile(
            f"{put.collection} {put.id} was changed by somebody else", hint="look at it and try again"
        )


def _state(row: Any, features: Features) -> str:
    if row["feature"] is not None and row["feature"] not in features.reactions:
        return FOREIGN
    return "erased" if row["erased"] else str(row["state"])


async def _conclude(
    connection: Connection, batch: BulkAction, commit: Commit, features: Features, applied: Applied
) -> None:
    """Say of each task that was left alone why, and add the batch up."""
    lost = [t.task_id for t in commit.transitions if t.task_id in applied.lost]
    found = await connection.fetch(SQL["statuses"], lost) if lost else []
    states = {row["id"]: _state(row, features) for row in found}
    applied.skipped = {task_id: UNUSABLE if task_id in applied.refused else states.get(task_id) for task_id in lost}
    audits = batch.audits(len(commit.transitions) - len(lost), applied.skipped)
    await connection.execute(SQL["audit"], codec.audits(audits))


async def _control(connection: Connection, control: Control, applied: Applied) -> None:
    match control:
        case Hold(target, name, on, actor, reason):
            if not await connection.fetchval(SQL["hold"], target.value, name, on, actor, reason):
                applied.repeated.add(f"{target.value}:{name}")
        case Limit(kind, concurrency, rate_ms, actor):
            await connection.fetchval(SQL["limit"], kind, concurrency, rate_ms, actor)
        case CancelRequest(task_id, actor, reason):
            if not await connection.fetchval(SQL["cancel"], task_id, actor, reason):
                applied.lost.add(task_id)
        case Declare(owner, schedules):
            await connection.fetchval(SQL["declare"], owner, codec.schedules(schedules))
        case CloseJoin(join_id):
            await connection.fetchval(SQL["close_join"], join_id)
