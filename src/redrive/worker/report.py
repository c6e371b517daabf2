"""Counts and logs what happens to tasks; the counts go to the store on sheets, with the worker's ticks."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterable

from redrive.kernel.handler_notes import LoopBlock
from redrive.kernel.machine import Event, ExpiredLease, Transition
from redrive.kernel.outcome import Failed, Outcome
from redrive.kernel.series import MOST_SERIES, Key, Tally, TallySheet, TallyTable, count_end, write
from redrive.kernel.task import State, Task
from redrive.observe.counters import Counters, Health
from redrive.observe.logs import TaskLog
from redrive.worker.handler_notes import HandlerNotes
from redrive.worker.run import Run, RunState

SHEET_EVERY = 10.0  # seconds; minutes are the finest that anybody looks at


class Tallies(TallyTable):
    """Counts by queue and kind since the last sheet. A sheet is kept until the store has said that it has it, and sent
    again under the same id; what is counted meanwhile goes on the next one. There is one sheet at most, of so many
    kinds at most, however long the store is away.

    ``expected`` are those that this worker may count: they have series of their own before others, the first by name,
    which are the same ones in every process of an application."""

    def __init__(self, expected: Iterable[Key] = ()) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._before = TallyTable({key: Tally() for key in sorted(set(expected))[:MOST_SERIES]})
        self._sheet: TallySheet | None = None
        self._next = 0.0
        self._last: tuple[str, str, Tally] = ("", "", Tally())

    def of(self, queue: str, kind: str) -> Tally:
        """Returns the tally of a kind in a queue. Tasks of one kind come in a row: that of the last one is at hand."""
        last_queue, last_kind, tally = self._last
        if kind != last_kind or queue != last_queue:
            tally = self[queue, kind]
            self._last = (queue, kind, tally)
        return tally

    def sheet(self, *, now: bool = False) -> TallySheet | None:
        """Returns what is to be sent with this heartbeat; None when there is nothing, or something was sent a moment
        ago. ``now``: this may be the last one."""
        if self._sheet is None and self and (now or time.monotonic() >= self._next):
            self._sheet = TallySheet(secrets.token_hex(8), write(self))
            with self._lock:
                _merge(self._before, self)
                self.clear()
            self._last = ("", "", Tally())
        return self._sheet

    def sent(self, sheet: TallySheet | None) -> None:
        """The store has it, or does not want it."""
        if sheet is not None and sheet is self._sheet:
            self._sheet = None
            self._next = time.monotonic() + SHEET_EVERY

    def since_start(self) -> TallyTable:
        """Returns everything that was counted since this worker was started, from any thread. What is counted at this
        moment may be left out, what was seen once never is."""
        found = TallyTable()
        with self._lock:
            _merge(found, self._before)
            _merge(found, self)
        return found


def _merge(mine: TallyTable, more: TallyTable) -> None:
    for key, tally in list(more.items()):  # at once: it may be counted in meanwhile
        mine[key].merge(tally)


LOG_EVENTS = {
    Event.RETRY: "task.requeued",
    Event.SNOOZE: "task.requeued",
    Event.RELEASE: "task.requeued",
    Event.FAIL: "task.failed",
    Event.ABORT: "task.cancelled",
}


# What metrics call the end of an attempt; a completion is counted by the tallies.
_OUTCOMES = {
    Event.RETRY: "retried",
    Event.SNOOZE: "snoozed",
    Event.RELEASE: "released",
    Event.FAIL: "failed",
    Event.ABORT: "cancelled",
    Event.HAND_BACK: "handed_back",
}
_LED = {State.CANCELLED: "task.cancelled"}  # by where moves lead that lead elsewhere than asked (machine.INSTEAD)
_COMPLETE = Event.COMPLETE  # looked at for every task


class Report:
    """Writes events of tasks to the log, to the counters and to the notes on handlers. Lines gather until ``flush``, so
    that all of a cycle are written at once."""

    def __init__(
        self, log: TaskLog, health: Health, counters: Counters, notes: HandlerNotes, expected: Iterable[Key] = ()
    ) -> None:
        self.log = log
        self.health = health
        self._notes = notes
        self.tallies = Tallies(expected)
        self._ended = counters.ends.count
        self.begin = log.begin
        self.flush = log.flush
        self._unknown: set[str] = set()

    def claimed(self, run: Run) -> None:
        self.health.claimed += 1
        task, log = run.task, self.log
        tally = self.tallies.of(task.queue, task.kind)
        tally.started += 1
        if task.waited is not None:
            tally.waited(task.waited)
        run.label = label = log.label(task)
        if log.tells(task.id):
            log.task("task.claimed", label)

    def unknown_feature(self, run: Run, feature: str) -> None:
        """A task that this worker can only hand back. Said once for each feature: there may be many of them, and each
        comes again until a worker that knows it is there."""
        run.label = self.log.label(run.task)
        if feature not in self._unknown:
            self._unknown.add(feature)
            self.log.worker(
                "worker.unknown_feature",
                f"tasks of feature {feature} are handed back: this worker does not know it",
                "warning",
                feature=feature,
                queue=run.task.queue,
            )

    def unknown_kind(self, run: Run) -> None:
        """A task of a known feature whose kind nobody handles here: handed back, and said once for each kind."""
        run.label, kind = self.log.label(run.task), run.task.kind
        self._notes.unhandled(kind)
        if kind not in self._unknown:
            self._unknown.add(kind)
            text = f"tasks of kind {kind} (feature {run.task.feature}) are handed back: this application has none"
            self.log.worker("worker.unknown_kind", text, "warning", kind=kind, queue=run.task.queue)

    def held_back(self, run: Run) -> None:
        """Reports a task that waits until it is alone: workers were lost while they had it."""
        note = "workers were lost while they ran it: it is begun when nothing else runs here"
        self.log.task("task.suspected", run.label, None, "warning", note=note)

    def refused(self, run: Run, transition: Transition) -> None:
        """Reports an outcome that the store did not take: the lease is somebody else's by now."""
        self.health.lost += 1
        self.health.refused += 1
        self.log.task(
            "task.lease_lost",
            run.label,
            transition.execution_ms,
            "warning",
            outcome=transition.event.value,
            note="the outcome was refused: the lease is no longer held",
        )

    def not_settled(self, run: Run, transition: Transition, why: str) -> None:
        """Reports an outcome that cannot be stored, and whose failing cannot be stored either: the task stays as it is
        until its lease ends, and recovery tries again."""
        self.health.lost += 1
        self.log.task(
            "task.not_settled",
            run.label,
            transition.execution_ms,
            "error",
            outcome=transition.event.value,
            message=why,
            note="neither its outcome nor its failure could be stored; it stays until its lease ends",
        )

    def lost(self, run: Run) -> None:
        """Reports a heartbeat that was not taken: the handler is told to stop, and its outcome will not be offered."""
        self.health.lost += 1
        self._now("task.lease_lost", run, "warning", note="the lease is no longer held; the handler is told to stop")

    def landed(self, run: Run, transition: Transition, instead: State | None = None) -> None:
        """Reports where a task has gone: where it was to, or ``instead`` somewhere else."""
        label, task, ms = run.label, run.task, transition.execution_ms
        tally = self.tallies.of(task.queue, task.kind)
        if ms is not None:
            tally.ran(ms)
        if transition.event is _COMPLETE:
            self.health.completed += 1
            tally.completed += 1
            if self.log.tells(task.id):
                self.log.task("task.completed", label, ms)
            return
        if transition.event is Event.HAND_BACK:
            self.health.requeued += 1
            self._ended(task.queue, task.kind, _OUTCOMES[transition.event])
            return
        event = LOG_EVENTS[transition.event] if instead is None else _LED[instead]
        self._count(event)
        cause = transition.failure
        outcome = _OUTCOMES[transition.event] if instead is None else instead.value
        self._ended(task.queue, task.kind, outcome, "" if cause is None else cause.reason)
        count_end(tally, transition, instead)
        if cause is not None:
            requeued = event == "task.requeued"
            self.log.task(
                event,
                label,
                transition.execution_ms,
                "error" if event == "task.failed" else "warning",
                error_code=cause.code,
                error_reason=cause.reason,
                message=cause.message,
                fingerprint=cause.fingerprint,
                retry_in=round(transition.delay, 3) if requeued else None,
                dead=transition.dead,
                **({} if instead is None else {"note": "somebody has cancelled it: there is no other attempt"}),
            )
        elif event == "task.requeued":
            self.log.task(event, label, transition.execution_ms, reason=transition.reason or transition.event.value)
        else:
            self.log.task(event, label, transition.execution_ms)

    def not_recovered(self, lease: ExpiredLease, why: str) -> None:
        """Reports a lease that ran out and whose task cannot be taken back: its feature refuses that."""
        self.log.task(
            "task.not_recovered",
            self.log.label(lease),
            lease.seconds * 1000,
            "error",
            message=why,
            held_by=lease.worker_id,
            note="it is tried again until that is mended",
        )

    @property
    def wants_recovered(self) -> bool:
        """Whether the tasks themselves are wanted of leases that ran out: that is one more read."""
        return False

    def recovered(
        self,
        lease: ExpiredLease,
        transition: Transition,
        instead: State | None,
        limit: float | None,
        task: Task | None = None,
    ) -> None:
        """Reports a task that was taken from whoever had it when its lease ran out. ``limit``: the time limit that it
        had passed. ``task``: itself, where it is wanted and can be read."""
        self.health.recovered += 1
        failed, cause = transition.to is State.FAILED, transition.failure
        reason = cause.reason if cause is not None else ""
        tally = self.tallies.of(lease.queue, lease.kind)
        if instead is State.CANCELLED:
            self.log.task(
                "task.cancelled",
                self.log.label(lease),
                lease.seconds * 1000,
                "warning",
                reason="cancelled",
                expired="lease",
                held_by=lease.worker_id,
            )
            tally.cancelled += 1
            self._ended(lease.queue, lease.kind, "cancelled", reason)
            return
        count_end(tally, transition)
        outcome = "failed" if failed else "released" if cause is None else "expired"
        self._ended(lease.queue, lease.kind, outcome, reason)
        if cause is None:
            label, ms = self.log.label(lease), lease.seconds * 1000
            self.log.task("task.requeued", label, ms, "warning", reason=transition.reason, held_by=lease.worker_id)
            return
        self.log.task(
            "task.failed" if failed else "task.requeued",
            self.log.label(lease),
            lease.seconds * 1000,
            "error" if failed else "warning",
            error_code=cause.code,
            error_reason=cause.reason,
            message=cause.message,
            fingerprint=cause.fingerprint,
            dead=transition.dead,
            expired="lease" if limit is None else "time limit",
            held_by=lease.worker_id,
        )

    def late(self, run: Run, outcome: Outcome) -> None:
        """Reports an outcome that no longer counts, and what the handler raised: the run was abandoned, or its own
        transaction completed it."""
        when = "its transaction had completed the task"
        if run.state is RunState.ABANDONED:
            when = "it was given up"
            self._notes.ended(run)
        self.health.late += 1
        raised: dict[str, object] = {}
        if isinstance(outcome, Failed):
            cause = outcome.failure
            raised = {"error_code": cause.code, "error_reason": cause.reason, "message": cause.message}
            raised["fingerprint"] = cause.fingerprint
        note = f"the handler ended after {when}"
        self._now("task.late", run, "warning", outcome=type(outcome).__name__.lower(), note=note, **raised)

    def abandoned(self, run: Run) -> None:
        """Reports a handler that did not stop and was fenced off."""
        self.health.abandoned += 1
        self._notes.stray(run)
        note = "the handler ignores being stopped; it runs on, and its result will be refused"
        if not run.interruptible:
            note += ' → a thread cannot be stopped, a process can: isolation="process"'
        self._now("task.abandoned", run, "error", reason=run.stop, note=note)

    def blocked(self, block: LoopBlock) -> None:
        """Counts a time that a handler had the event loop for itself, and notes which."""
        self.health.loop_blocked += 1
        self._notes.blocked(block)

    def _now(self, event: str, run: Run, level: str, **extra: object) -> None:
        self.begin()
        self.log.task(event, run.label, run.ms, level, **extra)
        self.flush()

    def _count(self, event: str) -> None:
        match event:
            case "task.requeued":
                self.health.requeued += 1
            case "task.failed":
                self.health.failed += 1
            case _:
                self.health.cancelled += 1
