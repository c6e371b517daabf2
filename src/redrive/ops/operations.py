"""Bulk operations: begin, list, pause, resume, cancel. Workers carry them out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

from redrive.errors import ApprovalNeeded, ChangedMeanwhile, InvalidInput, InvalidTransition, OperationUnknown
from redrive.ids import new_id
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.failed import FailureFilter
from redrive.kernel.operation import (
    COLLECTION,
    FINAL,
    LAST_ID,
    MOST_CANARIES,
    Action,
    Canary,
    Operation,
    Status,
    moment,
)
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put, Record
from redrive.kernel.task import WAITING, check_int, check_text
from redrive.ops import approvals, plans
from redrive.ops.actions import check_actor, check_reason, check_states
from redrive.ops.allowance import Rule, alone
from redrive.ops.failed import EVERY_FAILURE
from redrive.ops.matches import Matches, matching

WRITE_TRIES = 50
SLOWEST_RATE = 0.001


async def begin(
    store: Store,
    action: Action,
    which: FailureFilter = EVERY_FAILURE,
    *,
    actor: str,
    rule: Rule,
    reason: str | None = None,
    plan: str | None = None,
    rate: float | None = None,
    canary: Canary | None = None,
    stop_on_return: bool = False,
    bound: Operation | None = None,
    fixed: str | None = None,
    idempotent: bool | None = None,
    beside: Callable[[str], Commit] | None = None,
) -> tuple[Operation, Record | None]:
    """Begins an operation, or asks for it: dangerous and large ones wait for a second operator, and their approval is
    returned too. ``bound``: what ``preview`` returned, to do exactly that. ``beside`` gets its id, and returns rows and
    controls that land with its beginning, if it needs nobody to agree."""
    who, why = check_actor(actor), check_reason(reason)
    _check(action, canary, rate, stop_on_return)
    operation = Operation(
        str(new_id()),
        action,
        which,
        who,
        why,
        0,
        rate=rate,
        canary=canary,
        stop_on_return=stop_on_return,
        plan=plan,
        fixed=check_text(fixed, "fixed"),
        idempotent=idempotent,
    )
    if bound is None:
        operation = await _bounded(store, operation)
    else:
        operation = replace(
            operation,
            which=bound.which,
            upto=bound.upto,
            total=bound.total,
            cursor=bound.cursor,
            letters=bound.letters,
            cancelled=bound.cancelled,
            given_up_until=bound.given_up_until,
        )
    return await start(store, operation, rule, None if beside is None else beside(operation.id))


async def start(
    store: Store, operation: Operation, rule: Rule, beside: Commit | None = None
) -> tuple[Operation, Record | None]:
    """Writes the operation down: running, or waiting for a second operator."""
    more = beside or Commit()

    async def write(puts: Sequence[Put]) -> None:
        row = _note(operation, operation.actor, "OPERATION_START", operation.reason)
        written = [operation.put(), *puts, *more.puts]
        await store.apply(Commit(puts=written, audits=[row, *more.audits], rows=more.rows, controls=more.controls))

    try:
        await alone(store, rule, operation.actor, approvals.planned_action(operation), write)
    except ApprovalNeeded as needed:
        return await approvals.ask(store, operation, needed.why)
    return replace(operation, version=1), None


async def preview(
    store: Store,
    action: Action,
    which: FailureFilter = EVERY_FAILURE,
    plan: str | None = None,
    *,
    counted: bool = True,
) -> Operation:
    """Returns which tasks an operation would be about from now on, and how many; without ``counted``, as many as its
    plan has counted."""
    return await _bounded(store, Operation("", action, which, "", None, 0, plan=plan), counted=counted)


def matches_of(operation: Operation) -> Matches:
    """Returns the tasks that a retry, or a giving up of failures, is about."""
    failed, until = operation.total - operation.cancelled, operation.given_up_until
    return Matches(operation.which, operation.upto, failed, operation.letters, operation.cancelled, until)


async def show(store: Store, operation_id: str) -> Operation:
    record = await store.record(COLLECTION, operation_id)
    if record is None:
        raise OperationUnknown(f"there is no operation {operation_id!r}", hint="redrive operations lists them")
    return Operation.of(record)


async def list_operations(
    store: Store, *, states: tuple[str, ...] = (), limit: int = 50, before: int | None = None
) -> list[Record]:
    check_int(limit, "limit", 1, 500)
    check_states(states, list(Status))
    return await store.records(COLLECTION, states=states, limit=limit, before=before)


async def pause(store: Store, operation_id: str, *, actor: str, reason: str | None = None) -> Operation:
    return await _turn(store, operation_id, (Status.RUNNING,), Status.PAUSED, "OPERATION_PAUSE", actor, reason)


async def resume(store: Store, operation_id: str, *, actor: str, reason: str | None = None) -> Operation:
    return await _turn(store, operation_id, (Status.PAUSED,), Status.RUNNING, "OPERATION_RESUME", actor, reason)


async def cancel(store: Store, operation_id: str, *, actor: str, reason: str | None = None) -> Operation:
    """Stops an operation; what it has done so far stays done."""
    open_ones = (Status.RUNNING, Status.PAUSED, Status.WAITING)
    return await _turn(store, operation_id, open_ones, Status.CANCELLED, "OPERATION_CANCEL", actor, reason)


async def _turn(
    store: Store,
    operation_id: str,
    sources: tuple[Status, ...],
    to: Status,
    action: str,
    actor: str,
    reason: str | None,
) -> Operation:
    who, why = check_actor(actor), check_text(reason, "reason")
    for _ in range(WRITE_TRIES):
        try:
            await _turned(store, await show(store, operation_id), sources, to, action, who, why)
            break
        except ChangedMeanwhile:
            continue  # it has just made a step
    else:
        raise ChangedMeanwhile(f"operation {operation_id} moves too fast", hint="try again, or stop the workers first")
    return await show(store, operation_id)


async def _turned(
    store: Store, operation: Operation, sources: tuple[Status, ...], to: Status, action: str, who: str, why: str | None
) -> None:
    if operation.status not in sources:
        verb = {Status.RUNNING: "resumed", Status.PAUSED: "paused"}.get(to, "cancelled")
        over = operation.status in FINAL and to is not Status.CANCELLED
        others = "" if operation.work is not None else ": redrive retry, or redrive causes retry"
        rest = f"; what is left of it needs a new one{others}" if over else ""
        raise InvalidTransition(
            f"operation {operation.id} is {operation.status}",
            hint=f"only {' or '.join(sources)} ones can be {verb}{rest}",
        )
    if to in FINAL:
        ended = operation.called_off(who, action, why, f"by {who}" + (f": {why}" if why else ""))
        await store.apply(replace(ended, puts=[*ended.puts, *await approvals.withdrawn(store, operation)]))
    else:
        row = _note(operation, who, action, why, {"status": operation.status.value}, {"status": to.value})
        told = f"paused by {who}" + (f": {why}" if why else "") if to is Status.PAUSED else None
        await store.apply(Commit(puts=[replace(operation, status=to, note=told).put()], audits=[row]))


def _note(
    operation: Operation, actor: str, action: str, reason: str | None, before: object = None, after: object = None
) -> Audit:
    told = {"action": operation.verb, "total": operation.total, "filter": operation.told}
    told |= operation.said
    return Audit(actor, action, reason, None, operation.id, before, after or told, target=f"operation:{operation.id}")


def _check(action: Action, canary: Canary | None, rate: float | None, stop_on_return: bool) -> None:
    if rate is not None and not (math.isfinite(rate) and SLOWEST_RATE <= rate <= 1_000_000):
        raise InvalidInput(f"rate must be from {SLOWEST_RATE} to 1,000,000 tasks a second, not {rate:g}")
    if action is not Action.RETRY and (canary is not None or stop_on_return):
        raise InvalidInput(f"a canary makes sense for a retry, not to {action.value} tasks")
    if stop_on_return and rate is None and canary is None:
        raise InvalidInput(
            "without a rate or a canary everything is retried before the first one can come back",
            hint="add a rate or a canary to stop on return",
        )
    if canary is not None:
        check_int(canary.first, "canary", 1, MOST_CANARIES)
        if not 0 < canary.percent <= 100:
            raise InvalidInput(f"the canary's percentage must be above 0 and at most 100, not {canary.percent:g}")


async def _bounded(store: Store, operation: Operation, *, counted: bool = True) -> Operation:
    """Returns the operation with the end of the set that it is about. Without ``counted``, a plan's number will do: it
    may be lower than what it means."""
    if operation.action is Action.ERASE:
        raise InvalidInput("erasing has a way of its own", hint="redrive erase, or POST /api/erase")
    if operation.action is Action.WORK:
        raise InvalidInput("work of a feature has a way of its own", hint="redrive outbox rebuild, for example")
    if operation.action is Action.PURGE:
        return await _purged(store, operation)
    if operation.action is Action.CANCEL:
        return await _cancelled(store, operation)
    if operation.plan is not None:
        if operation.which != EVERY_FAILURE:
            raise InvalidInput("a plan says which tasks are meant", hint="leave the filters out")
        plan = await plans.load(store, operation.plan)
        failed = plan.count - plan.cancelled
        if plan.more and counted:
            failed = await store.count_failed(plan.which, upto=plan.upto)
        bound = replace(operation, which=plan.which, upto=plan.upto, total=failed)
        given_up = (plan.letters, plan.cancelled, plan.until)
    else:
        # Only a retry is about cancelled tasks, too: to give up what was given up changes nothing.
        found = await matching(store, operation.which, cancelled=operation.action is Action.RETRY)
        bound = replace(operation, upto=found.upto, total=found.failed)
        given_up = (found.letters, found.cancelled, found.until)
    if operation.action is not Action.RETRY:
        return bound
    letters, cancelled, until = given_up
    total = bound.total + cancelled
    return replace(bound, total=total, letters=letters, cancelled=cancelled, given_up_until=until)


async def _purged(store: Store, operation: Operation) -> Operation:
    which = operation.which
    if operation.plan is not None or which != FailureFilter(kind=which.kind, queue=which.queue):
        raise InvalidInput("waiting tasks are purged by queue and kind", hint="leave other filters out")
    if which.everything:
        raise InvalidInput("a purge of everything that waits is refused", hint="say which queue or kind")
    counts = await store.counts()
    total = sum(
        count.n
        for count in counts
        if count.state in WAITING and which.kind in (None, count.kind) and which.queue in (None, count.queue)
    )
    return replace(operation, total=total, cursor=LAST_ID, upto=moment(await store.now()))


async def _cancelled(store: Store, operation: Operation) -> Operation:
    which = operation.which
    if which.join is None or operation.plan is not None or which != FailureFilter(join=which.join):
        raise InvalidInput("tasks that have not ended are cancelled by batch", hint="leave other filters out")
    found = await store.joins([UUID(which.join)])
    total = sum(join.pending for join in found)
    return replace(operation, total=total, cursor=f"0 {LAST_ID}", upto=moment(await store.now()))
