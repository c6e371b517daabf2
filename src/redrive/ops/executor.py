"""Executors: programs that are no workers of ours claim tasks, keep them alive and report."""

from __future__ import annotations

import contextlib
import random
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from redrive.errors import ErrorCode, LeaseLost, PayloadInvalid, RedriveError
from redrive.kernel.backoff import Backoff
from redrive.kernel.commit import Commit
from redrive.kernel.failure import MAX_STACK, Failure, FailureType, Origin, clean, failure
from redrive.kernel.machine import Lease, Policy, declared, settle
from redrive.kernel.outcome import Cancel, Completed, Fail, Failed, HandedBack, Outcome, Released, Retry
from redrive.kernel.payload import JsonText, decode, decode_shallow, encode
from redrive.kernel.ports.reads import get_task
from redrive.kernel.ports.store import ClaimRequest, Heartbeat, Store
from redrive.kernel.series import TallySheet, TallyTable, count_end, write
from redrive.kernel.summary import Payload
from redrive.kernel.task import MAX_PAYLOAD_BYTES, MAX_TEXT, Claimed, State, Task, check_name, check_text
from redrive.ops.workers import OUTSIDE
from redrive.version import __version__

_COUNTED: WeakKeyDictionary[Store, TallyTable] = WeakKeyDictionary()
_REASON = re.compile(r"[a-z][a-z0-9_]{0,49}\Z")


async def claim(
    store: Store, worker_id: str, queues: Sequence[str], count: int, lease: float, kinds: Sequence[str] | None = None
) -> list[Claimed]:
    """Claims what is ready now: what has become due since somebody last looked, too. An executor's queues may have no
    worker that would promote it."""
    await _show(store, worker_id, tuple(queues), count)
    want = ClaimRequest(worker_id, tuple(queues), count, lease, None if kinds is None else tuple(kinds))
    found = await _known(store, (await store.cycle(Commit(), want)).claimed)
    for task in found:
        tally = _counted(store)[task.queue, task.kind]
        tally.started += 1
        if task.waited is not None:
            tally.waited(task.waited)
    return await _readable(store, found)


async def _known(store: Store, claimed: list[Claimed]) -> list[Claimed]:
    """Returns the claimed tasks without those of features that this process does not know, and could not end: they go
    back."""
    foreign = [
        task for task in claimed if task.feature is not None and task.feature not in store.features.reactions.names
    ]
    if foreign:
        moves = [settle(_lease(task), HandedBack(), Policy(), 0.0) for task in foreign]
        with contextlib.suppress(RedriveError):  # else their leases run out
            await store.apply(Commit(transitions=moves))
    return [task for task in claimed if task not in foreign] if foreign else claimed


def _lease(task: Claimed) -> Lease:
    return Lease(task.id, task.token, task.attempt, task.max_attempts, feature=task.feature, join=task.join)


async def _readable(store: Store, claimed: list[Claimed]) -> list[Claimed]:
    """Returns the claimed tasks without those whose payload cannot be handed out; those are failed, as a worker
    would."""
    good: list[Claimed] = []
    for task in claimed:
        try:
            decode_shallow(task.payload)
        except ValueError as error:
            lease = _lease(task)
            said = Fail(ErrorCode.PAYLOAD_INVALID.value, f"the payload cannot be read: {error}"[:1000])
            transition = settle(lease, said, Policy(), 0.0)
            with contextlib.suppress(RedriveError):  # else its lease runs out
                await store.apply(Commit(transitions=[transition]))
                count_end(_counted(store)[task.queue, task.kind], transition)
        else:
            good.append(task)
    return good


async def _show(store: Store, worker_id: str, queues: tuple[str, ...], count: int) -> None:
    """Ticks for whoever asks for work: lists it among the workers, one row for each set of queues, promotes what is due
    in them, and sends what this process has counted for executors. It may claim, also if this cannot be written
    down."""
    name = f"{worker_id} ({', '.join(queues)})"[:MAX_TEXT]
    table = _counted(store)
    sheet = TallySheet(secrets.token_hex(8), write(table)) if table else None
    table.clear()
    with contextlib.suppress(RedriveError):
        await store.tick(Heartbeat(name, OUTSIDE, 0, queues, count, 0, __version__, {}, False, sheet=sheet))


def _counted(store: Store) -> TallyTable:
    """Returns what this process has counted for executors since one of them last claimed. Executors have no heartbeat
    of their own: it goes to the store with their next claim, whoever's that is."""
    return _COUNTED.setdefault(store, TallyTable())


async def heartbeat(store: Store, task_id: UUID, token: UUID, lease: float, progress: str | None) -> list[UUID]:
    """Renews the lease; returns the task if somebody wants it cancelled."""
    lost = await store.renew([(task_id, token)], lease, {} if progress is None else {task_id: progress})
    if lost:
        raise LeaseLost(f"the lease of task {task_id} is lost", hint="stop working on it: somebody else may be at it")
    task = await get_task(store, task_id)
    return [task_id] if task is not None and task.cancel_requested_at is not None else []


def stored(value: Any, what: str, limit: int = MAX_PAYLOAD_BYTES) -> str:
    """Returns a value as JSON text that can also be read again."""
    text = encode(value, what, limit)
    try:
        decode(text)
    except ValueError as error:
        raise PayloadInvalid(f"{what} cannot be stored: {error}", hint="nest it less deeply") from None
    return text


def outcome(
    name: str,
    result: Any = None,
    code: str | None = None,
    message: str | None = None,
    after: float | None = None,
    *,
    reason: str | None = None,
    type: FailureType | None = None,
    stack: str | None = None,
) -> Outcome:
    """Returns what an executor reports as an outcome of the state machine."""
    match name:
        case "completed":
            return Completed(None if result is None else stored(result, "result"))
        case "cancelled":
            return Cancel(message or "the executor cancelled it")
        case "released":
            return Released(message or "the executor gave it back")
    if reason is not None or type is not None or stack is not None:
        return Failed(_failure(code or ErrorCode.EXECUTION_FAILED.value, message, reason, type, stack), after)
    if code in (None, ErrorCode.EXECUTION_FAILED.value):
        return Retry(message or "the executor reported a failure", after=after)
    return Fail(code, message or code)


def _failure(
    code: str, message: str | None, reason: str | None, type: FailureType | None, stack: str | None
) -> Failure:
    """Makes a failure as our own workers would. A reason is a name, and everybody may see it; anything else that is
    said there is part of the message, which not everybody may see."""
    kept = None if stack is None else clean(stack[:MAX_STACK])[:MAX_STACK]
    given = check_text(reason, "errorReason")
    if given is not None and not _REASON.match(given):
        message, given = f"{message} ({given})" if message else given, None
    found = failure(
        check_name(code, "errorCode"), given or "reported", message or "the executor reported a failure", stack=kept
    )
    return found if type is None else replace(found, type=type)


def _of_task(told: Failure, kind: str, payload: Payload) -> Failure:
    """Returns the failure as one of this kind; what may be shown of it depends on the task's payload."""
    return failure(told.code, told.reason, told.message, type=told.type, where=kind, stack=told.stack, payload=payload)


async def report(
    store: Store,
    task: Task,
    token: UUID,
    said: Outcome,
    *,
    policy: Policy | None,
    backoff: Backoff,
    ms: float | None = None,
) -> None:
    """Settles an attempt, fenced by the token. Reporting the same twice is fine."""
    lease = Lease(task.id, token, task.attempt_count, task.max_attempts, task.worker_id, ms, task.feature, task.join_id)
    given = Payload(task.payload if isinstance(task.payload, JsonText) else None)
    if isinstance(said, Fail | Retry):
        said = declared(said, Origin(place=task.kind, payload=given))
    elif isinstance(said, Failed):
        said = Failed(_of_task(said.failure, task.kind, given), said.after)
    transition = settle(lease, said, policy or Policy(backoff=backoff), random.random())  # noqa: S311 - jitter
    cycle = await store.cycle(Commit(transitions=[transition]), None, again=True)
    if cycle.lost:
        raise LeaseLost(
            f"task {task.id} is {task.state.value} and not held by this token",
            hint="its lease ran out, or somebody else reported first; nothing was changed",
        )
    if task.state is State.RUNNING:  # else it is the same report again
        tally = _counted(store)[task.queue, task.kind]
        count_end(tally, transition, cycle.instead.get(task.id))
        if ms is not None:
            tally.ran(ms)
