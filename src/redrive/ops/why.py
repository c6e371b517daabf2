"""Why a task is not running: every reason that holds, the strongest first, with what to do about it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from redrive.errors import ErrorCode
from redrive.kernel.audit import AuditFilter
from redrive.kernel.operation import COLLECTION as OPERATIONS
from redrive.kernel.operation import Forget, Operation, Retry, Status
from redrive.kernel.ports.store import HoldRow, LimitRow, Overview, Query, Store, WorkerRow
from redrive.kernel.task import State, Task
from redrive.kernel.wording import span
from redrive.ops import handler_notes
from redrive.ops.circuits import describe
from redrive.ops.held import is_gated
from redrive.ops.workers import DECLARED_DEAD, OUTSIDE, is_lost, live_workers

UNTAKEN = timedelta(seconds=30)  # a task that is due for so long, while workers are free, is handled by none of them
RESTARTED = timedelta(seconds=5)  # a worker may claim a moment before its first heartbeat is written
SHOWN = 3


@dataclass(slots=True, frozen=True)
class Reason:
    """Why a task does not run: ``code`` for machines, ``text`` for people, ``fix`` the command to run, if there is one.
    ``quoted`` are words of the task itself, which not everybody may see."""

    code: str
    text: str
    fix: str | None = None
    quoted: str | None = None

    @property
    def full(self) -> str:
        return self.text if self.quoted is None else f"{self.text}: {self.quoted}"


FORGOTTEN = "somebody forgot or purged it, as no longer needed: it comes back by its id, no filter means it"


async def why(store: Store, task: Task) -> list[Reason]:
    """Returns the reasons; none for a task that runs well, or is done. A handler that harms others, or runs on, is
    told in any state."""
    noted = [Reason(*told) for told in await handler_notes.about(store, task)]
    return [*await _reasons(store, task), *noted]


async def _reasons(store: Store, task: Task) -> list[Reason]:
    match task.state:
        case State.FAILED:
            return [_failed(task), *_unhandled(task), *await _operations(store, task)]
        case State.PAUSED:
            return await _queued(store, task) if is_gated(task) else await _paused(store, task)
        case State.DELAYED:
            unknown = await _unknown_feature(store, task)
            overview = await store.overview()
            due = _delayed(task, await store.now())
            return [*unknown, due, *_pause_reasons(task, overview.holds), *_circuit(task, overview)]
        case State.QUEUED:
            return await _queued(store, task)
        case State.RUNNING:
            return _lost(task, await store.overview())
        case State.CANCELLED if task.forgotten and task.erased_at is None:
            return [Reason("forgotten", FORGOTTEN, f"redrive retry {task.id}")]
    return []


def _lost(task: Task, overview: Overview) -> list[Reason]:
    """Returns the reason for a task whose worker is not heard of any more, or was started anew since."""
    worker, ends, now = _worker(task, overview), task.lease_expires_at, overview.now
    if ends is None:
        return []
    if ends <= now:
        ended = f"its lease ended {_span((now - ends).total_seconds())} ago"
        text = f"{ended}; {_then(task, worker)} as soon as a worker looks"
        return [Reason("lease_over", text), *_unserved(task, overview)]
    if worker is None:
        return []
    if is_lost(worker, now):
        gone = f"has been silent since {_at(worker.seen_at)} ({_span((now - worker.seen_at).total_seconds())})"
    elif _restarted(task, worker):
        gone = f"was started anew at {_at(worker.started_at)}, and does not have it"
    else:
        return []
    return [
        Reason(
            "lost_worker",
            f"its worker {worker.id} {gone}; {f'{DECLARED_DEAD}, or ' if worker.hears else ''}the lease ends at"
            f" {_at(ends)} (in {_span((ends - now).total_seconds())}), then {_then(task, worker)}",
        ),
        *_unserved(task, overview),
    ]


def lost_by(task: Task, overview: Overview) -> str | None:
    """Returns in a few words why nobody works on a running task; None: somebody does."""
    worker, ends, now = _worker(task, overview), task.lease_expires_at, overview.now
    if task.state is not State.RUNNING or ends is None:
        return None
    if ends <= now:
        return f"its lease ended {span(now - ends)} ago"
    if worker is not None and is_lost(worker, now):
        return f"silent for {span(now - worker.seen_at)}"
    return "started anew since" if worker is not None and _restarted(task, worker) else None


def _worker(task: Task, overview: Overview) -> WorkerRow | None:
    return next((worker for worker in overview.workers if worker.id == task.worker_id), None)


def _restarted(task: Task, worker: WorkerRow) -> bool:
    return task.last_attempt_at is not None and task.last_attempt_at < worker.started_at - RESTARTED


def _then(task: Task, worker: WorkerRow | None) -> str:
    """Returns what becomes of it when its lease is recovered. A worker that beat and was lost uses up no attempt."""
    if task.cancel_requested_at is not None:
        return "it is cancelled"
    spared = worker is not None and worker.hears
    return (
        "it is tried again"
        if spared or task.attempt_count < task.max_attempts
        else "it fails: its attempts are used up"
    )


def _unserved(task: Task, overview: Overview) -> list[Reason]:
    return [reason for reason in _served(task, overview) if reason.code == "no_worker"]


def _at(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%H:%M:%SZ")


def _failed(task: Task) -> Reason:
    cause = "not retried by itself" if task.dead_reason == "non_retryable" else "its attempts are used up"
    mended = "once that is mended"
    if task.error_code in (ErrorCode.PAYLOAD_INVALID, ErrorCode.PAYLOAD_MISSING):
        mended = "once its handler takes this payload, which stays as it is (give a new parameter a default)"
    said = f"failed with {task.error_code} ({cause}), and can be retried {mended}"
    return Reason("failed", said, f"redrive retry {task.id}", task.error_message or None)


def _unhandled(task: Task) -> list[Reason]:
    """Returns what may be behind a kind without a handler: code of two ages that runs side by side."""
    if task.error_reason != "no_handler":
        return []
    text = f"the worker that took it has no {task.kind}: it may run older code than who enqueued it"
    return [Reason("no_handler", f"{text}; with TASK_WORKER_UNKNOWN_KIND=leave workers leave such tasks to others")]


async def _operations(store: Store, task: Task) -> list[Reason]:
    """Returns bulk operations that will reach it."""
    found: list[Reason] = []
    for record in await store.records(OPERATIONS, states=(Status.WAITING, Status.RUNNING, Status.PAUSED), limit=20):
        operation = Operation.of(record)
        what, seq = operation.what, task.failed_seq or 0
        if not isinstance(what, Retry | Forget) or seq > what.upto or seq <= what.cursor:
            continue
        if await store.failed_ids(operation.which, limit=1, after=seq - 1, upto=seq):
            if operation.status is Status.WAITING:
                found.append(
                    Reason(
                        "waiting_approval",
                        f"operation {operation.id} by {operation.actor} waits for approval",
                        f"redrive approvals approve {operation.approval} --by NAME",
                    )
                )
            else:
                found.append(Reason("operation", f"operation {operation.id} is {operation.status}, and will reach it"))
    return found


async def _paused(store: Store, task: Task) -> list[Reason]:
    by = task.paused_by or ""
    if by.startswith("group:"):
        held = _pause_reasons(task, (await store.overview()).holds)
        return held or [Reason("resuming", f"group {task.group} was resumed, and its tasks are on their way back")]
    rows = await store.audit(AuditFilter(task_id=task.id, action="TASK_PAUSE"), limit=1)
    said = f": {rows[0].reason}" if rows and rows[0].reason else ""
    return [Reason("paused", f"paused by {by or 'somebody'}{said}", f"redrive resume {task.id}")]


async def _unknown_feature(store: Store, task: Task) -> list[Reason]:
    """Returns the reason for a task that every worker hands back: its feature is misspelt, or its application is not
    running."""
    if task.feature is None or task.feature not in (await store.diagnose()).unknown:
        return []
    text = f"it belongs to feature {task.feature}, which no live worker knows"
    return [Reason("unknown_feature", text, "redrive work --app module:app")]


def _delayed(task: Task, now: datetime) -> Reason:
    due = task.next_attempt_at
    left = max((due - now).total_seconds(), 0.0) if due is not None else 0.0
    if task.error_code is not None and task.attempt_count:
        return Reason(
            "retry_backoff",
            f"attempt {task.attempt_count} of {task.max_attempts} failed with {task.error_code}; the next is due in"
            f" {_span(left)}",
        )
    return Reason("run_at", f"due in {_span(left)}", quoted=_snooze_reason(task))


def _snooze_reason(task: Task) -> str | None:
    """Returns what a handler that snoozed has to say about it: ``Snooze(5, state={"why": "the door is shut"})``."""
    said = task.memo.get("why") if isinstance(task.memo, dict) else None
    return said if isinstance(said, str) and said else None


async def _queued(store: Store, task: Task) -> list[Reason]:
    overview = await store.overview()
    known = [
        *await _unknown_feature(store, task),
        *_pause_reasons(task, overview.holds),
        *_circuit(task, overview),
        *await _limited(store, task, overview),
    ]
    # That free workers leave it alone needs no guess where something is known to keep them from it.
    reasons = known + [one for one in _served(task, overview) if not known or one.code != "unhandled"]
    return reasons or [Reason("ready", "ready: the next free worker takes it in its turn")]


def pauses_of(task: Task, overview: Overview) -> list[str]:
    """Returns in a few words each pause or open circuit that keeps a waiting task from being claimed."""
    if task.state not in (State.QUEUED, State.DELAYED) and not is_gated(task):
        return []
    circuit = overview.circuit_of(task.kind)
    return [
        f"{hold.target} {hold.name} paused by {hold.actor}" + (f": {hold.reason}" if hold.reason else "")
        for hold in pauses(task, overview.holds)
    ] + ([] if circuit is None else [f"circuit {circuit.name} {describe(circuit, overview.now)}"])


def pauses(task: Task, holds: Sequence[HoldRow]) -> list[HoldRow]:
    """Returns the pauses of its queue, kind or group; resuming one of several does not let it run yet."""
    names = {("queue", task.queue), ("kind", task.kind), ("group", task.group)}
    return [hold for hold in holds if (hold.target, hold.name) in names]


def _pause_reasons(task: Task, holds: Sequence[HoldRow]) -> list[Reason]:
    return [
        Reason(
            "paused",
            f"{hold.target} {hold.name} was paused by {hold.actor}" + (f": {hold.reason}" if hold.reason else ""),
            f"redrive resume --{hold.target} {shlex.quote(hold.name)}",
        )
        for hold in pauses(task, holds)
    ]


def _circuit(task: Task, overview: Overview) -> list[Reason]:
    """Returns the open circuit that tasks of its kind wait for."""
    row = overview.circuit_of(task.kind)
    if row is None:
        return []
    text = f"circuit {row.name} is {describe(row, overview.now)}; it waits, and uses no attempts"
    return [Reason("circuit", text, f"redrive circuits probe {shlex.quote(row.name)}")]


async def _limited(store: Store, task: Task, overview: Overview) -> list[Reason]:
    limit = next((limit for limit in overview.limits if limit.kind == task.kind), None)
    if limit is None:
        return []
    found = []
    if limit.concurrency is not None and limit.running >= limit.concurrency:
        found.append(await _quota(store, limit))
    if limit.rate_ms is not None and limit.next_at is not None and limit.next_at > overview.now:
        left = (limit.next_at - overview.now).total_seconds()
        found.append(
            Reason("rate", f"kind {limit.kind} starts one task every {limit.rate_ms} ms; the next in {_span(left)}")
        )
    return found


async def _quota(store: Store, limit: LimitRow) -> Reason:
    holders = await store.find(Query((State.RUNNING,), limit.kind, limit=SHOWN, brief=True))
    named = ", ".join(f"{task.id} on {task.worker_id}" for task in holders)
    more = f" and {limit.running - len(holders)} more" if limit.running > len(holders) else ""
    return Reason(
        "quota",
        f"kind {limit.kind} may run {limit.concurrency} at once, and does: {named}{more}",
        f"redrive limits {limit.kind} --concurrency N",
    )


def _served(task: Task, overview: Overview) -> list[Reason]:
    alive = live_workers(overview)
    serving = [worker for worker in alive if task.queue in worker.queues]
    start = f"redrive work --app module:app --queue {task.queue}"
    if not serving:
        others = sorted({queue for worker in alive for queue in worker.queues})
        known = f"; live workers serve {', '.join(others)}" if others else "; no worker is alive at all"
        return [Reason("no_worker", f"no live worker serves queue {task.queue}{known}", start)]
    own = [worker for worker in serving if worker.host != OUTSIDE]
    if own and all(worker.running >= worker.concurrency for worker in own):
        return [Reason("busy", f"all workers of queue {task.queue} are busy: {_busy(own)}")]
    since = max(
        when
        for when in (
            task.created_at,
            task.run_at,
            task.last_attempt_at,
            task.last_replayed_at,
            overview.now - timedelta(days=9999),
        )
        if when is not None
    )
    waited = overview.now - since
    if waited > UNTAKEN and own and not any(worker.running for worker in own):
        text = f"it is due since {_span(waited.total_seconds())} and workers are free: does none of them handle"
        return [Reason("unhandled", f"{text} {task.kind}?", start)]
    return []


def _busy(workers: Sequence[WorkerRow]) -> str:
    shown = ", ".join(f"{worker.id} ({worker.running} of {worker.concurrency})" for worker in workers[:SHOWN])
    return shown + (f" and {len(workers) - SHOWN} more" if len(workers) > SHOWN else "")


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
