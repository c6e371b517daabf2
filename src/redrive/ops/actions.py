"""Operators' actions on tasks, queues and kinds. Every action and its audit row are one transaction."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from uuid import UUID

from redrive.errors import InvalidInput, InvalidTransition, TaskNotFound
from redrive.kernel.audit import FOREIGN, AuditFilter
from redrive.kernel.commit import CancelRequest, Commit, Drain, Hold, Limit, Target
from redrive.kernel.failure_filter import TaskStatus
from redrive.kernel.machine import TABLE, Event, Transition
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put
from redrive.kernel.retry_guard import Withheld
from redrive.kernel.task import State, Task, check_name, check_text
from redrive.ops.people import mixed_scripts, person

logger = logging.getLogger("redrive.ops")


@dataclass(slots=True)
class Result:
    """Which tasks an action reached, and why not the others."""

    done: list[UUID] = field(default_factory=list)
    requested: list[UUID] = field(default_factory=list)
    skipped: dict[UUID, str] = field(default_factory=dict)
    notes: dict[UUID, str] = field(default_factory=dict)  # what else is to be known about those that were asked to stop
    operation: str | None = None  # that says what becomes of several


_TARGETS = {
    Event.REDRIVE: State.QUEUED,
    Event.CANCEL: State.CANCELLED,
    Event.PAUSE: State.PAUSED,
    Event.RESUME: State.QUEUED,
}


async def retry(
    store: Store, ids: Sequence[UUID], *, actor: str, reason: str | None = None, puts: Sequence[Put] = ()
) -> Result:
    """Makes failed and cancelled tasks run again with fresh attempts; others are skipped. ``puts`` land with it."""
    result = await _move(store, ids, Event.REDRIVE, actor, reason, puts)
    await log_retried(store, result.done, actor=actor, reason=reason)
    return result


async def log_retried(
    store: Store, task_ids: Collection[UUID], *, actor: str, reason: str | None, bulk_id: str | None = None
) -> None:
    """Writes one ``task.retried`` line for each of these, with who retried it and why."""
    if not task_ids or not logger.isEnabledFor(logging.INFO):
        return
    for task in (await store.statuses(task_ids)).values():
        logger.info(
            "%s retried %s",
            actor,
            task.id,
            extra={
                "event": "task.retried",
                "task_id": str(task.id),
                "kind": task.kind,
                "queue": task.queue,
                "attempt": task.attempt_count,
                "trace_id": task.trace_id,
                "actor": actor,
                "reason": reason,
                "bulk_id": bulk_id,
            },
        )


async def pause_tasks(store: Store, ids: Sequence[UUID], *, actor: str, reason: str | None = None) -> Result:
    return await _move(store, ids, Event.PAUSE, actor, reason)


async def resume_tasks(store: Store, ids: Sequence[UUID], *, actor: str, reason: str | None = None) -> Result:
    return await _move(store, ids, Event.RESUME, actor, reason)


async def cancel(
    store: Store, ids: Sequence[UUID], *, actor: str, reason: str | None = None, puts: Sequence[Put] = ()
) -> Result:
    """Cancels waiting and failed tasks now, and asks running ones to stop; those end as cancelled when they do.
    ``puts`` land with all of them."""
    who, why = check_actor(actor), check_text(reason, "reason")
    result, left = Result(), list(dict.fromkeys(ids))
    # Twice: between the look and the act a task may have been claimed, or have come back from its worker.
    for landing in (puts, ()):
        if left:
            left = await _cancel_as_found(store, left, who, why, landing, result)
    result.skipped = await _why_not(store, left, TABLE[Event.CANCEL].sources)
    return result


async def _cancel_as_found(
    store: Store, ids: Sequence[UUID], who: str, why: str | None, puts: Sequence[Put], result: Result
) -> list[UUID]:
    """Cancels in one transaction, by the states that the tasks are in now; returns those that it did not reach."""
    found = await store.statuses(ids)
    running = {task_id for task_id in ids if task_id in found and found[task_id].state is State.RUNNING}
    moves = [
        Transition(task_id, Event.CANCEL, State.CANCELLED, actor=who, reason=why)
        for task_id in ids
        if task_id not in running
    ]
    requests = [CancelRequest(task_id, who, why) for task_id in ids if task_id in running]
    applied = await store.apply(Commit(transitions=moves, controls=requests, puts=puts))
    lost = applied.lost
    result.done += [move.task_id for move in moves if move.task_id not in lost]
    result.requested += [request.task_id for request in requests if request.task_id not in lost]
    for task_id in applied.asked_before:
        result.notes[task_id] = await _first_request(store, task_id)
    return [task_id for task_id in ids if task_id in lost]


async def _first_request(store: Store, task_id: UUID) -> str:
    """Returns who asked first; that request stands, and is the only one in the audit log."""
    rows = await store.audit(AuditFilter(task_id=task_id, action="TASK_CANCEL_REQUEST"), limit=1)
    asked = f" by {rows[0].actor} at {rows[0].at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}" if rows else ""
    return f"already asked to stop{asked}"


async def forget(
    store: Store, ids: Sequence[UUID], *, actor: str, reason: str | None = None, puts: Sequence[Put] = ()
) -> Result:
    """Gives failed tasks up: they go to history, from where they can be retried by their ids as long as it is kept."""
    who, why = check_actor(actor), check_text(reason, "reason")
    unique = list(dict.fromkeys(ids))
    if not unique:
        return Result()
    found = await store.statuses(unique)
    # Also those that are not failed, for the store to refuse: ``puts`` count what it did not.
    moves = [
        Transition(
            task_id,
            Event.CANCEL,
            State.CANCELLED,
            actor=who,
            reason=why,
            action="TASK_FORGET",
            forgotten=True,
            sources=(State.FAILED,),
            seen=found[task_id].failed_seq if task_id in found else None,
        )
        for task_id in unique
    ]
    lost = (await store.apply(Commit(transitions=moves, puts=puts))).lost
    result = Result(done=[task_id for task_id in unique if task_id not in lost])
    result.skipped = await _why_not(store, [task_id for task_id in unique if task_id in lost], (State.FAILED,))
    return result


async def hold(store: Store, target: str, name: str, *, actor: str, reason: str | None = None, on: bool = True) -> bool:
    """Pauses or resumes a queue, kind, group or schedule; False when it already was."""
    try:
        where = Target(target)
    except ValueError:
        raise InvalidInput(f"{target!r} cannot be paused", hint="a queue, kind, group, schedule or task can") from None
    if where is Target.GROUP:
        check_text(name, "group")
    else:
        check_name(name, target)
    change = Hold(where, name, on, check_actor(actor), check_text(reason, "reason"))
    applied = await store.apply(Commit(controls=[change]))
    return f"{target}:{name}" not in applied.repeated


async def drain(
    store: Store, workers: Sequence[str], *, actor: str, reason: str | None = None
) -> tuple[list[str], list[str]]:
    """Asks workers to end; returns those that were asked now, and those that had been asked before."""
    who, why = check_actor(actor), check_text(reason, "reason")
    applied = await store.apply(Commit(controls=[Drain(name, who, why) for name in workers]))
    asked = [name for name in workers if f"worker:{name}" not in applied.repeated]
    return asked, [name for name in workers if name not in asked]


async def set_limit(store: Store, kind: str, *, concurrency: int | None, rate_ms: int | None, actor: str) -> None:
    """Changes what the fleet may do with a kind, from the next claim on."""
    for what, value in (("concurrency", concurrency), ("rate_ms", rate_ms)):
        if value is not None and value < 1:
            raise InvalidInput(f"{what} must be at least 1, not {value}", hint="leave it out for no limit")
    await store.apply(Commit(controls=[Limit(check_name(kind, "kind"), concurrency, rate_ms, check_actor(actor))]))


async def require(store: Store, task_id: UUID, documents: int | None = None) -> Task:
    task = (await store.get_many([task_id], documents=documents)).get(task_id)
    if task is None:
        raise TaskNotFound(f"there is no task {task_id}", hint="it may be older than the history that is kept")
    return task


def insist(result: Result, verb: str) -> None:
    """Raises with the reason if the one task of a Result was skipped."""
    for task_id, why in result.skipped.items():
        if why == "not found":
            raise TaskNotFound(f"there is no task {task_id}")
        raise refused(task_id, verb, why)


def refused(task_id: UUID, verb: str, why: str, hint: str | None = None) -> InvalidTransition:
    """Returns the error that says why nothing was done with a task."""
    told, hint = (why.why, why.hint) if isinstance(why, Withheld) else (why, hint)
    return InvalidTransition(f"task {task_id} cannot be {verb}: {told}", hint=hint)


async def _move(
    store: Store, ids: Sequence[UUID], event: Event, actor: str, reason: str | None, puts: Sequence[Put] = ()
) -> Result:
    who, why = check_actor(actor), check_reason(reason)
    unique = list(dict.fromkeys(ids))
    transitions = [Transition(task_id, event, _TARGETS[event], actor=who, reason=why) for task_id in unique]
    if not transitions:
        return Result()
    applied = await store.apply(Commit(transitions=transitions, puts=puts))
    result = Result(done=[task_id for task_id in unique if task_id not in applied.lost])
    left = [task_id for task_id in unique if task_id in applied.lost]
    result.skipped = await _why_not(store, left, TABLE[event].sources) | applied.withheld
    return result


async def _why_not(store: Store, task_ids: Collection[UUID], sources: Collection[State]) -> dict[UUID, str]:
    found = await store.statuses(task_ids) if task_ids else {}
    wanted = " or ".join(state.value for state in sources)

    def reason(one: TaskStatus | None) -> str:
        if one is None:
            return "not found"
        if one.erased:
            return "it is erased: what it carried is gone"
        if one.feature is not None and one.feature not in store.features.reactions.names:
            return FOREIGN
        return f"it is {one.state.value}, not {wanted}"

    return {task_id: reason(found.get(task_id)) for task_id in task_ids}


def check_reason(reason: str | None) -> str | None:
    """Returns why somebody acts; refuses one that says nothing."""
    if reason is not None and not reason.strip():
        raise InvalidInput("the reason is empty", hint="say why, for the audit log")
    return check_text(reason, "reason")


def check_actor(actor: str) -> str:
    who = check_text(actor, "actor")
    if who is None or not person(who):
        raise InvalidInput("an action needs an actor", hint="say who acts, for the audit log")
    if scripts := mixed_scripts(who):
        raise InvalidInput(
            f"the name {who!r} is written in several scripts: {', '.join(scripts).lower()}",
            hint="letters of different scripts may look the same, and people are told apart by their names; use one",
        )
    return who


def check_states(given: Collection[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise InvalidInput(f"{name!r} is no state of these", hint=f"one of: {', '.join(known)}")
