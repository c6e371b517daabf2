"""Bulk operations: preview, begin, list, pause, resume, cancel, put back. Workers carry them out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated
from uuid import UUID

from redrive.errors import ApprovalNeeded, ChangedMeanwhile, InvalidInput, InvalidTransition, OperationUnknown
from redrive.ids import new_id
from redrive.kernel.audit import Audit, AuditFilter
from redrive.kernel.commit import Commit
from redrive.kernel.failure_filter import EVERY_FAILURE, FailureFilter
from redrive.kernel.operation import (
    COLLECTION,
    FINAL,
    MOST_CANARIES,
    OF_WAITING,
    Action,
    Canary,
    Cancel,
    Forget,
    Operation,
    Purge,
    Retry,
    Status,
    Then,
    moment,
)
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put, Record
from redrive.kernel.task import WAITING, State, check_int, check_text
from redrive.ops import approvals
from redrive.ops.actions import check_actor, check_reason, check_states
from redrive.ops.allowance import Rule, alone
from redrive.ops.given import Given, parameter
from redrive.ops.operations import plans
from redrive.ops.operations.selection import Matches, matching

WRITE_TRIES = 50
SLOWEST_RATE = 0.001
MOST_PUT_BACK = 1000  # are listed at a time; those that are left are found by asking again


TRIED_FIRST = "try first (canary)"
CANARY = {
    "first": Annotated[
        int, Given("Retry so many first, the rest if they succeed.", metavar="N", least=1, most=MOST_CANARIES)
    ],
    "percent": Annotated[
        float,
        Given(
            "How many canaries have to succeed (100).",
            label="of which succeed, %",
            metavar="P",
            least=0.1,
            most=100,
        ),
    ],
    "then": Annotated[
        Then,
        Given("When the canaries have succeeded: go on, or wait for resume.", label="and then", metavar="go-on|wait"),
    ],
}


@dataclass(slots=True, frozen=True)
class How:
    """How somebody wants an operation carried out: at most ``rate`` tasks a second, a ``canary`` first, and no further
    once a cause that was retried is back. ``fixed`` and ``idempotent`` are what whoever retries or gives up everything
    has to say; it is kept, and the second operator reads it."""

    rate: Annotated[
        float | None,
        Given(
            "At most so many tasks a second.",
            label="tasks a second",
            metavar="N",
            least=SLOWEST_RATE,
            most=1_000_000,
        ),
    ] = None
    canary: Annotated[
        Canary | None,
        Given("The first so many go ahead; the rest follows if enough of them succeed.", of=CANARY, label=TRIED_FIRST),
    ] = None
    stop_on_return: Annotated[
        bool,
        Given("Stop when a task fails again by a cause that was retried.", label="stop when the same failure is back"),
    ] = False
    fixed: Annotated[
        str | None,
        Given("What was fixed; asked for where it is about everything.", label="what was fixed", metavar="TEXT"),
    ] = None
    idempotent: Annotated[
        bool | None,
        Given(
            "May the handlers run twice for one task? Asked for with fixed.",
            label="may the handlers run twice",
            option="--idempotent/--not-idempotent",
        ),
    ] = None

    @property
    def paced(self) -> bool:
        """Whether it is not just done as quickly as it goes."""
        return self.rate is not None or self.canary is not None or self.stop_on_return

    def check(self, action: Action) -> None:
        """Refuses what makes no sense for this action."""
        rate, canary = self.rate, self.canary
        if rate is not None and not (math.isfinite(rate) and SLOWEST_RATE <= rate <= 1_000_000):
            raise InvalidInput(f"rate must be from {SLOWEST_RATE} to 1,000,000 tasks a second, not {rate:g}")
        if action is not Action.RETRY and (canary is not None or self.stop_on_return):
            raise InvalidInput(f"a canary makes sense for a retry, not to {action.value} tasks")
        if self.stop_on_return and rate is None and canary is None:
            raise InvalidInput(
                "without a rate or a canary everything is retried before the first one can come back",
                hint="add a rate or a canary to stop on return",
            )
        if canary is not None:
            check_int(canary.first, "canary", 1, MOST_CANARIES)
            if not 0 < canary.percent <= 100:
                raise InvalidInput(f"the canary's percentage must be above 0 and at most 100, not {canary.percent:g}")

    def check_answers(self) -> None:
        """Requires what the second operator has to know: a retry of what is still broken only makes more noise, and one
        of handlers that may not run twice does harm."""
        answers = {"fixed": self.fixed, "idempotent": self.idempotent}
        missing = [name for name, value in answers.items() if value is None]
        if missing:
            raise InvalidInput(
                f"this is about everything that is failed: {' and '.join(missing)} must be answered",
                hint='say what was fixed (--fixed "…", JSON fixed), and whether the handlers may run twice for one task'
                " (--idempotent or --not-idempotent, JSON idempotent: true or false)",
            )


AS_EVER = How()
HOW = parameter("how", How, AS_EVER)  # as faces take it


async def begin(
    store: Store,
    action: Action,
    which: FailureFilter = EVERY_FAILURE,
    *,
    actor: str,
    rule: Rule,
    reason: str | None = None,
    plan: str | None = None,
    how: How = AS_EVER,
    bound: Operation | None = None,
    beside: Callable[[str], Commit] | None = None,
) -> tuple[Operation, Record | None]:
    """Begins an operation, or asks for it: dangerous and large ones wait for a second operator, and their approval is
    returned too. ``bound``: what ``preview`` returned, to do exactly that. ``beside`` gets its id, and returns rows and
    controls that land with its beginning, if it needs nobody to agree."""
    who, why = check_actor(actor), check_reason(reason)
    how.check(action)
    if bound is None:
        bound = await preview(store, action, which, plan)
    what = bound.what
    if isinstance(what, Retry):
        what = replace(what, canary=how.canary, stop_on_return=how.stop_on_return)
    operation = replace(
        bound,
        id=str(new_id()),
        what=what,
        actor=who,
        reason=why,
        rate=how.rate,
        fixed=check_text(how.fixed, "fixed"),
        idempotent=how.idempotent,
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
    """Returns the operation that would begin now, by nobody: which tasks it would be about, and how many. Without
    ``counted``, a plan's number will do: it may be lower than what it means."""
    match action:
        case Action.RETRY | Action.FORGET:
            return await _of_failures(store, action, which, plan, counted)
        case Action.PURGE:
            total = await _waiting(store, which, plan)
            return Operation("", Purge(moment(await store.now())), which, "", None, total)
        case Action.CANCEL:
            total = await _unended(store, which, plan)
            return Operation("", Cancel(moment(await store.now())), which, "", None, total)
        case Action.ERASE:
            raise InvalidInput("erasing has a way of its own", hint="redrive erase, or POST /api/erase")
        case Action.WORK:
            raise InvalidInput("work of a feature has a way of its own", hint="the commands of the feature begin it")


async def _of_failures(
    store: Store, action: Action, which: FailureFilter, plan: str | None, counted: bool
) -> Operation:
    """Returns what a retry of failures, or a giving up, is about. Only a retry is about cancelled tasks, too: to give
    up what was given up changes nothing."""
    if plan is None:
        found = await matching(store, which, cancelled=action is Action.RETRY)
    elif which != EVERY_FAILURE:
        raise InvalidInput("a plan says which tasks are meant", hint="leave the filters out")
    else:
        found = (await plans.load(store, plan)).matches
        if found.more and counted:
            found = replace(found, failed=await store.count_failed(found.which, upto=found.upto))
    if action is Action.RETRY:
        return Operation("", found.retry(plan), found.which, "", None, found.total)
    return Operation("", Forget(found.upto, 0, plan), found.which, "", None, found.failed)


async def _waiting(store: Store, which: FailureFilter, plan: str | None) -> int:
    """Returns how many tasks a purge is about."""
    if plan is not None or which != FailureFilter(kind=which.kind, queue=which.queue):
        raise InvalidInput("waiting tasks are purged by queue and kind", hint="leave other filters out")
    if which.everything:
        raise InvalidInput("a purge of everything that waits is refused", hint="say which queue or kind")
    return sum(
        count.n
        for count in await store.counts()
        if count.state in WAITING and which.kind in (None, count.kind) and which.queue in (None, count.queue)
    )


async def _unended(store: Store, which: FailureFilter, plan: str | None) -> int:
    """Returns how many tasks the cancel of a batch is about."""
    if which.join is None or plan is not None or which != FailureFilter(join=which.join):
        raise InvalidInput("tasks that have not ended are cancelled by batch", hint="leave other filters out")
    return sum(join.pending for join in await store.joins([UUID(which.join)]))


def matches_of(operation: Operation) -> Matches:
    """Returns the tasks that a retry, or a giving up of failures, is about."""
    match operation.what:
        case Retry() as retry:
            failed = operation.total - retry.cancelled
            return Matches(operation.which, retry.upto, failed, retry.letters, retry.cancelled, retry.given_up_until)
        case Forget() as forget:
            return Matches(operation.which, forget.upto, operation.total)
    raise InvalidInput(f"to {operation.verb} is not about failures")


async def put_back(
    store: Store, record: Record, *, actor: str, rule: Rule, reason: str | None = None
) -> tuple[Operation, Record | None]:
    """Retries what a purge or cancel gave up and is still cancelled, as an operation of its own, under the same rule:
    no filter finds what never failed."""
    ids = await _cancelled_by(store, record)
    plan = await plans.make(store, FailureFilter(ids=tuple(ids)), actor, cancelled=True, named=ids)
    why = reason or f"puts back what {record.id} gave up"
    return await begin(store, Action.RETRY, actor=actor, reason=why, plan=plan.token, rule=rule)


def can_put_back(operation: Operation) -> bool:
    return operation.action in OF_WAITING and operation.status in FINAL and bool(operation.done)


async def _cancelled_by(store: Store, record: Record) -> list[UUID]:
    """Returns tasks that are cancelled by this purge. What ended later, was retried since, and given up anew."""
    operation = Operation.of(record)
    if not can_put_back(operation):
        raise InvalidTransition(
            f"operation {operation.id} is a {operation.action}, is {operation.status}, and has {operation.done} done",
            hint="what a purge or cancel gave up can be put back when it is over; failures are retried by a filter",
        )
    items = AuditFilter(bulk_id=operation.id, action=f"{operation.action.audited}_ITEM")
    found, before = list[UUID](), None
    while len(found) < MOST_PUT_BACK:
        rows = await store.audit(items, limit=MOST_PUT_BACK, before=before, documents=0)
        tasks = await store.get_many([row.task_id for row in rows if row.task_id is not None], documents=0)
        found += [
            task.id
            for task in tasks.values()
            if task.state is State.CANCELLED and task.finished_at is not None and task.finished_at <= record.updated_at
        ]
        if len(rows) < MOST_PUT_BACK:
            break
        before = rows[-1].id
    if not found:
        raise InvalidTransition(
            f"nothing that operation {operation.id} gave up is cancelled any more", hint="or history has left it"
        )
    return found[:MOST_PUT_BACK]


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
        note = f"paused by {who}" + (f": {why}" if why else "") if to is Status.PAUSED else None
        await store.apply(Commit(puts=[replace(operation, status=to, note=note).put()], audits=[row]))


def _note(
    operation: Operation, actor: str, action: str, reason: str | None, before: object = None, after: object = None
) -> Audit:
    begun = {"action": operation.verb, "total": operation.total, "filter": operation.subject, **operation.answers}
    return Audit(actor, action, reason, None, operation.id, before, after or begun, target=f"operation:{operation.id}")
