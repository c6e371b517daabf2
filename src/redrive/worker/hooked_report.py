"""Reports what happens to tasks to an application's hooks, too."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from redrive.handlers.events import TaskEvent
from redrive.kernel.failure import Failure
from redrive.kernel.machine import Event, ExpiredLease, Transition
from redrive.kernel.payload import JsonText
from redrive.kernel.task import State, Task
from redrive.worker.hooks import Hooks
from redrive.worker.report import Report
from redrive.worker.run import Run

_NAMES = {
    Event.COMPLETE: ("completed",),
    Event.RETRY: ("retried",),
    Event.SNOOZE: ("snoozed",),
    Event.RELEASE: ("released",),
    Event.FAIL: ("failed", "dead"),
    Event.ABORT: ("cancelled",),
}


class HookedReport(Report):
    """A Report that hands events to hooks. Made only where an application has some: without them nothing is asked."""

    def __init__(self, hooks: Hooks, worker_id: str, *args: Any) -> None:
        super().__init__(*args)
        self._hooks = hooks
        self._worker_id = worker_id

    def landed(self, run: Run, transition: Transition, instead: State | None = None) -> None:
        super().landed(run, transition, instead)
        names = _NAMES.get(transition.event, ()) if instead is None else ("cancelled",)
        self._tell(names, run, transition)

    def refused(self, run: Run, transition: Transition) -> None:
        super().refused(run, transition)
        self._tell(("lost",), run, transition)

    @property
    def wants_recovered(self) -> bool:
        return any(map(self._hooks.wanted, ("recovered", "cancelled", "failed", "dead")))

    def recovered(
        self,
        lease: ExpiredLease,
        transition: Transition,
        instead: State | None,
        limit: float | None,
        task: Task | None = None,
    ) -> None:
        super().recovered(lease, transition, instead, limit, task)
        names = ["recovered"]
        if instead is not None:
            names.append("cancelled")
        elif transition.to is State.FAILED:
            names += ["failed", "dead"]
        group, scope, public = self._labels(task)
        for name in filter(self._hooks.wanted, names):
            about = (lease.id, lease.kind, lease.queue, lease.attempt, lease.max_attempts)
            self._hooks.post(
                TaskEvent(
                    name,
                    datetime.now(UTC),
                    *about,
                    self._worker_id,
                    group=group,
                    scope=scope,
                    trace_id=lease.trace_id,
                    duration_ms=lease.seconds * 1000,
                    reason=transition.reason,
                    public=public,
                    **_end(transition),
                )
            )

    def _labels(self, task: Task | None) -> tuple[str | None, str | None, Any]:
        """Returns what only the row of a task says: its group, its scope, and what of its payload all may see."""
        if task is None:
            return None, None, None
        payload = task.payload if isinstance(task.payload, JsonText) else None
        return task.group, task.scope, self._hooks.public(task.kind, payload)

    def _tell(self, names: tuple[str, ...], run: Run, transition: Transition) -> None:
        task = run.task
        for name in filter(self._hooks.wanted, names):
            self._hooks.post(
                TaskEvent(
                    name,
                    datetime.now(UTC),
                    task.id,
                    task.kind,
                    task.queue,
                    task.attempt,
                    task.max_attempts,
                    self._worker_id,
                    group=task.group,
                    scope=task.scope,
                    trace_id=task.trace_id,
                    duration_ms=transition.execution_ms,
                    reason=transition.reason,
                    public=self._hooks.public(task.kind, task.payload),
                    exception=run.error if transition.failure is not None else None,
                    **_end(transition),
                )
            )


def _end(transition: Transition) -> dict[str, Any]:
    """Returns how an attempt ended, as fields of an event."""
    again = transition.to in (State.DELAYED, State.QUEUED)
    end = {"retry_in": transition.delay or 0.0 if again else None, "dead_reason": transition.dead}
    return end if transition.failure is None else end | _error(transition.failure)


def _error(cause: Failure) -> dict[str, Any]:
    return {
        "error_code": cause.code,
        "error_reason": cause.reason,
        "failure_type": cause.type.value,
        "error_message": cause.message,
        "error_stack": cause.stack,
        "error_fingerprint": cause.fingerprint,
        "error_summary": cause.summary,
    }
