"""Carries out bulk operations, piece after piece. Whoever has the duty drives; a second driver notices, and leaves."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from redrive.errors import ChangedMeanwhile, PlanUnknown, StoreUnavailable, StoreUnusable
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.failure_filter import FailedRef, FailureFilter
from redrive.kernel.operation import COLLECTION, Action, Cancel, Erasure, Forget, Operation, Purge, Retry, Status, Work
from redrive.kernel.ports.store import Query, Store
from redrive.kernel.task import WAITING, State
from redrive.ops.actions import log_retried
from redrive.ops.operations import erase, plans
from redrive.ops.operations.lifecycle import matches_of

logger = logging.getLogger("redrive.operations")
MOST_TASKS_PER_PIECE = 1000
DRIVE_EVERY_S = 1.0  # seconds between two calls of the duty
DRIVE_AT_A_TIME_S = 60.0  # seconds that one call of the duty may take
DRIVER_GONE_AFTER_S = 3.0  # another driver that has not moved for so long is gone, or waits for its rate
LOOK_AT_CANARIES_EVERY_S = 1.0


async def drive(store: Store, driver: str, stopping: Callable[[], bool]) -> None:
    """Carries out each running operation for a while, at its rate."""
    running = await store.records(COLLECTION, states=(Status.RUNNING.value,), limit=MOST_TASKS_PER_PIECE)
    await asyncio.gather(*(_carefully(store, driver, stopping, record.id) for record in running))


async def has_work(store: Store, driver: str) -> tuple[tuple[str, int], ...]:
    """Returns operations that can move this moment, by id and version: who has tried, and finds the same again, has
    moved none. One whose canaries are out, that waits for its rate, or that somebody else drives, cannot."""
    now, found = await store.now(), []
    for record in await store.records(COLLECTION, states=(Status.RUNNING.value,), limit=MOST_TASKS_PER_PIECE):
        since = (now - record.updated_at).total_seconds()
        try:
            operation = Operation.of(record)
        except (KeyError, TypeError, ValueError):
            continue  # of another version: whoever drives says so
        if operation.action is Action.WORK:
            continue  # a duty of its feature drives it
        if operation.testing:
            assert operation.canary is not None
            ready = operation.judged((await store.statuses(operation.canary.ids)).values()) is not None
        else:
            ready = not _waits(operation, since, driver)
        if ready:
            found.append((record.id, record.version))
    return tuple(found)


def _waits(operation: Operation, since: float, driver: str) -> bool:
    """Returns whether it has to wait, for its rate or because somebody else drives it. ``since``: seconds from its last
    step. The rate is kept by the store's clock, whoever drives."""
    others = operation.driver not in (None, driver) and since < DRIVER_GONE_AFTER_S
    return others or bool(operation.last_piece and since < operation.pause_after_piece)


async def _carefully(store: Store, driver: str, stopping: Callable[[], bool], operation_id: str) -> None:
    """Drives one; what is wrong with it must not keep the others."""
    try:
        await _drive(store, driver, stopping, operation_id)
    except (StoreUnavailable, StoreUnusable):
        pass  # the heartbeat meets the same trouble, and says so
    except Exception:
        logger.exception(
            "operation %s cannot go on", operation_id, extra={"event": "operation.failed", "operation_id": operation_id}
        )


async def _drive(store: Store, driver: str, stopping: Callable[[], bool], operation_id: str) -> None:
    ends = time.monotonic() + DRIVE_AT_A_TIME_S
    while not stopping() and time.monotonic() < ends:
        try:
            wait = await step(store, operation_id, driver)
        except ChangedMeanwhile:
            return  # somebody else drives it, or an operator has just paused it
        if wait is None or wait >= DRIVE_EVERY_S or time.monotonic() + wait > ends:
            return  # what is worth a longer wait is looked at again when the duty comes round
        if wait and not await _passes(store, wait):
            return


async def _passes(store: Store, seconds: float) -> bool:
    """Waits. In tests the store's clock may stand still: then there is nothing to wait for."""
    before = await store.now()
    await asyncio.sleep(seconds)
    return await store.now() > before


async def step(store: Store, operation_id: str, driver: str) -> float | None:
    """Does what comes next. Returns after how many seconds there is more to do; None when it does not run any more."""
    record = await store.record(COLLECTION, operation_id)
    if record is None or record.state != Status.RUNNING:
        return None
    operation = Operation.of(record)
    what = operation.what
    if isinstance(what, Work):
        return None  # a duty of its feature drives it
    if operation.testing:
        return await _look_at_canaries(store, operation)
    since = (await store.now() - record.updated_at).total_seconds()
    if _waits(operation, since, driver):
        theirs = operation.driver not in (None, driver)
        return None if theirs and since < DRIVER_GONE_AFTER_S else operation.pause_after_piece - since
    match what:
        case Erasure():
            return await erase.step(store, operation, driver)
        case Cancel():
            return await _cancel(store, operation, what, driver)
        case Purge():
            tasks = await _waiting(store, operation, what)
        case Retry() | Forget():
            if (why := await _came_back(store, operation)) is not None:
                await _end(store, operation, Status.STOPPED, why)
                return None
            tasks = await _failed(store, operation, what)
    if not tasks and operation.filling and operation.canary is not None and operation.canary.ids:
        await store.apply(operation.no_more_canaries())
        return 0.0
    if not tasks:
        await _end(store, operation, Status.COMPLETED)
        return None
    applied = await store.apply(operation.carry_out(tasks, driver))
    if operation.action is Action.RETRY:
        retried = [task.id for task in tasks if task.id not in applied.skipped]
        await log_retried(store, retried, actor=operation.actor, reason=operation.reason, bulk_id=operation.id)
    return len(tasks) / operation.rate if operation.rate else 0.0


async def _cancel(store: Store, operation: Operation, cancel: Cancel, driver: str) -> float | None:
    """Cancels the next members of a join that wait, and asks those that run to stop."""
    place = cancel.last
    while found := await store.find(_unended(operation, place)):
        if meant := [task for task in found if cancel.means(task) and task.cancel_requested_at is None]:
            running = {task.id for task in meant if task.state is State.RUNNING}
            refs = [FailedRef(task.id, None, None) for task in meant]
            await store.apply(operation.carry_out(refs, driver, running))
            return 0.0
        place = found[-1].id  # all of these were asked before
    again = cancel.next_round()
    if again is None:
        await _end(store, operation, Status.COMPLETED)
        return None
    await store.apply(Commit(puts=[replace(operation, what=again).put()]))
    return 0.0


def _unended(operation: Operation, before: UUID) -> Query:
    states = (*WAITING, State.RUNNING)
    return Query(states, join=operation.which.join, limit=operation.piece, before=before, brief=True)


async def _end(store: Store, operation: Operation, status: Status, why: str | None = None) -> None:
    await store.apply(operation.ended(status, why))
    logger.info(
        "operation %s (%s of %d tasks by %s) is %s%s",
        operation.id,
        operation.action,
        operation.total,
        operation.actor,
        status,
        f": {why}" if why else "",
        extra={
            "event": f"operation.{status}",
            "operation_id": operation.id,
            "done": operation.done,
            "skipped": operation.skipped,
        },
    )


async def _failed(store: Store, operation: Operation, what: Retry | Forget) -> list[FailedRef]:
    """Returns the next tasks of a retry, or of a giving up of failures."""
    listed = None if what.plan is None else await _listed(store, what.plan)
    if listed is None:
        return await matches_of(operation).next(store, operation.piece, what.cursor)
    # Each task that the plan lists, also those that somebody else has dealt with: they are audited as skipped. What is
    # listed as cancelled is for a retry.
    end = None if isinstance(what, Retry) else what.upto
    ahead = [(task_id, seq) for task_id, seq in listed.items() if seq > what.cursor and (end is None or seq <= end)]
    ahead = ahead[: operation.piece]
    ids = tuple(task_id for task_id, _ in ahead)
    still = {one.id: one for one in await store.failed_ids(FailureFilter(ids=ids), limit=len(ids), upto=what.upto)}
    return [
        FailedRef(task_id, seq, still[task_id].error_fingerprint if task_id in still else None)
        for task_id, seq in ahead
    ]


async def _listed(store: Store, token: str) -> dict[UUID, int] | None:
    try:
        return (await plans.load(store, token)).listed
    except PlanUnknown:
        return None  # older than plans are kept: its filter and its boundary are part of the operation


async def _waiting(store: Store, operation: Operation, purge: Purge) -> list[FailedRef]:
    """Returns the next tasks of a purge."""
    which, last = operation.which, purge.last
    while True:
        query = Query(WAITING, which.kind, which.queue, limit=operation.piece, before=last, brief=True)
        found = await store.find(query)
        meant = [FailedRef(task.id, None, None) for task in found if purge.means(task)]
        if meant or not found:
            return meant
        last = found[-1].id  # all of these came later


async def _look_at_canaries(store: Store, operation: Operation) -> float | None:
    assert operation.canary is not None
    verdict = operation.judged((await store.statuses(operation.canary.ids)).values())
    if verdict is None:
        return LOOK_AT_CANARIES_EVERY_S
    if isinstance(verdict, str):
        await _end(store, operation, Status.STOPPED, verdict)
        return None
    await store.apply(Commit(puts=[verdict.put()], audits=_paused(operation, verdict)))
    return 0.0


def _paused(before: Operation, after: Operation) -> list[Audit]:
    """Returns the row of an operation that waits behind its canary, as whoever began it wanted."""
    if after.status is before.status:
        return []
    states = {"status": before.status.value}, {"status": after.status.value, "note": after.note}
    target = f"operation:{after.id}"
    return [Audit(after.actor, "OPERATION_PAUSE", after.reason, None, after.id, *states, target=target)]


async def _came_back(store: Store, operation: Operation) -> str | None:
    """Returns why to stop, when a task of this operation is failed again by a cause that it has redriven."""
    retry = operation.retry
    for fingerprint in () if retry is None else retry.fingerprints:
        which = FailureFilter(bulk_id=operation.id, fingerprint=fingerprint)
        if retry is not None and (back := await store.failed(which, limit=1, after=retry.upto)):
            return operation.returned(back)
    return None
