"""What an operator can do. Every action and its audit row are one transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from redrive.errors import InvalidInput, InvalidTransition, TaskNotFound
from redrive.kernel.commit import CancelRequest, Commit, Hold, Limit, Target
from redrive.kernel.machine import TABLE, Event, Transition
from redrive.kernel.records import Put
from redrive.kernel.store import Store
from redrive.kernel.task import State, Task, check_name, check_text
from redrive.ops.retry_log import log_retried


@dataclass(slots=True)
class Result:
    """Which tasks an action reached, and why not the others."""

    done: list[UUID] = field(default_factory=list)
    requested: list[UUID] = field(default_factory=list)
    skipped: dict[UUID, str] = field(default_factory=dict)


_TARGETS = {
    Event.REDRIVE: State.QUEUED,
    Event.CANCEL: State.CANCELLED,
    Event.PAUSE: State.PAUSED,
    Event.RESUME: State.QUEUED,
}


async def retry(
    store: Store, ids: Sequence[UUID], *, actor: str, reason: str | None = None, puts: Sequence[Put] = ()
) -> Result:
    """Failed and cancelled tasks run again with fresh attempts; nothing else is touched. ``puts`` land with it."""
    result = await _move(store, ids, Event.REDRIVE, actor, reason, puts)
    await log_retried(store, result.done, actor=actor, reason=reason)
    return result


async def pause_tasks(store: Store, ids: Sequence[UUID], *, actor: str, reason: str | None = None) -> Result:
    return await _move(store, ids, Event.PAUSE, actor, reason)


async def resume_tasks(store: Store, ids: Sequence[UUID], *, actor: str, reason: str | None = None) -> Result:
    return await _move(store, ids, Event.RESUME, actor, reason)


async def cancel(
    store: Store, ids: Sequence[UUID], *, actor: str, reason: str | None = None, puts: Sequence[Put] = ()
) -> Result:
    """Waiting tasks are cancelled now; running ones are asked to stop, and end as cancelled when they do."""
    result = await _move(store, ids, Event.CANCEL, actor, reason, puts)
    for task_id in list(result.skipped):
        # Between the two looks a task may have been claimed: ask its worker instead.
        request = CancelRequest(task_id, check_actor(actor), check_text(reason, "reason"))
        applied = await store.apply(Commit(controls=[request]))
        if task_id not in applied.lost:
            del result.skipped[task_id]
            result.requested.append(task_id)
    return result


async def forget(
    store: Store, ids: Sequence[UUID], *, actor: str, reason: str | None = None, puts: Sequence[Put] = ()
) -> Result:
    """Failed tasks are given up: they go to history, from where they can be retried as long as it is kept."""
    who, why = check_actor(actor), check_text(reason, "reason")
    result, moves = Result(), list[Transition]()
    found = await store.standings(list(dict.fromkeys(ids)))
    for task_id in dict.fromkeys(ids):
        task = found.get(task_id)
        if task is None or task.state is not State.FAILED:
            result.skipped[task_id] = "not found" if task is None else f"it is {task.state.value}, not failed"
        else:
            moves.append(Transition(
                task_id, Event.CANCEL, State.CANCELLED, actor=who, reason=why, action="TASK_FORGET",
                seen=task.failed_seq,
            ))  # fmt: skip
    lost = (await store.apply(Commit(transitions=moves, puts=puts))).lost if moves else set()
    result.done = [move.task_id for move in moves if move.task_id not in lost]
    result.skipped |= await _why_not(store, lost, Event.REDRIVE)
    return result


async def hold(store: Store, target: str, name: str, *, actor: str, reason: str | None = None, on: bool = True) -> bool:
    """Pause or resume a queue, kind or group; False when it already was."""
    try:
        where = Target(target)
    except ValueError:
        raise InvalidInput(f"{target!r} cannot be paused", hint="a queue, kind, group or task can") from None
    if where is Target.GROUP:
        check_text(name, "group")
    else:
        check_name(name, target)
    change = Hold(where, name, on, check_actor(actor), check_text(reason, "reason"))
    applied = await store.apply(Commit(controls=[change]))
    return f"{target}:{name}" not in applied.repeated


async def set_limit(store: Store, kind: str, *, concurrency: int | None, rate_ms: int | None, actor: str) -> None:
    """Change what the fleet may do with a kind, from the next claim on."""
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
    """For callers with one task: turn a skip into an error that says why."""
    for task_id, why in result.skipped.items():
        if why == "not found":
            raise TaskNotFound(f"there is no task {task_id}")
        raise InvalidTransition(f"task {task_id} cannot be {verb}: {why}")


async def _move(
    store: Store, ids: Sequence[UUID], event: Event, actor: str, reason: str | None, puts: Sequence[Put] = ()
) -> Result:
    who, why = check_actor(actor), check_text(reason, "reason")
    unique = list(dict.fromkeys(ids))
    transitions = [Transition(task_id, event, _TARGETS[event], actor=who, reason=why) for task_id in unique]
    if not transitions:
        return Result()
    applied = await store.apply(Commit(transitions=transitions, puts=puts))
    result = Result(done=[task_id for task_id in unique if task_id not in applied.lost])
    result.skipped = await _why_not(store, [task_id for task_id in unique if task_id in applied.lost], event)
    return result


async def _why_not(store: Store, task_ids: Collection[UUID], event: Event) -> dict[UUID, str]:
    found = await store.standings(task_ids) if task_ids else {}
    wanted = " or ".join(state.value for state in TABLE[event].sources)
    states = {
        task_id: "erased: what it carried is gone" if one.erased else f"{one.state.value}, not {wanted}"
        for task_id, one in found.items()
    }
    return {task_id: f"it is {states[task_id]}" if task_id in states else "not found" for task_id in task_ids}


def check_actor(actor: str) -> str:
    who = check_text(actor, "actor")
    if who is None:
        raise InvalidInput("an action needs an actor", hint="say who acts, for the audit log")
    return who


def check_states(given: Collection[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise InvalidInput(f"{name!r} is no state of these", hint=f"one of: {', '.join(known)}")
