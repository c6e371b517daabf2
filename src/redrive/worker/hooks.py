"""Tells an application's hooks what happens to tasks."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from redrive.handlers.events import Hook, TaskEvent
from redrive.handlers.functions import name_of
from redrive.kernel.failure import Failure
from redrive.kernel.machine import Event, ExpiredLease, Transition
from redrive.kernel.payload import JsonText
from redrive.kernel.task import State, Task
from redrive.worker.pools import CannotStart, ThreadPool
from redrive.worker.report import Report
from redrive.worker.run import Run

logger = logging.getLogger("redrive.hooks")

Public = Callable[[str, str | None], Any]
MOST_WAITING = 1000
AT_ONCE = 8
TELL_EVERY_S = 60.0
LAST_WORDS_S = 5.0


class _Line:
    """The events that wait for one hook, and the calls of it that are under way."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.waiting: deque[TaskEvent] = deque()
        self.slots = asyncio.Semaphore(AT_ONCE)
        self.in_threads = threading.Semaphore(AT_ONCE)  # also those that were given up and run on
        self.bell = asyncio.Event()


class Hooks:
    """The hooks of one worker. ``limit``: seconds that each may take; ``public``: what of a payload all may see."""

    def __init__(self, hooks: Mapping[str, Sequence[Hook]], limit: float, public: Public) -> None:
        self.public = public
        lines = {id(hook): _Line(hook) for listed in hooks.values() for hook in listed}
        self._lines = tuple(lines.values())
        self._hooks = {name: tuple(lines[id(hook)] for hook in listed) for name, listed in hooks.items() if listed}
        self._limit = limit
        self._threads = ThreadPool()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self._log_again_at: dict[str, float] = {}
        self.dropped = 0
        self.raised = 0

    def has_listener(self, name: str) -> bool:
        """Returns whether anybody listens to this event."""
        return name in self._hooks

    def post(self, event: TaskEvent) -> None:
        """Hands an event over, from the worker's loop; costs an append for each hook."""
        for line in self._hooks[event.name]:
            if len(line.waiting) < MOST_WAITING:
                line.waiting.append(event)
            else:
                self._drop(line.hook, f"more than {MOST_WAITING:,} wait for it")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="redrive-hooks", daemon=True)
            try:
                self._thread.start()
            except (RuntimeError, MemoryError) as error:
                self._thread = None
                for line in self._hooks[event.name]:
                    line.waiting.clear()
                    self._drop(line.hook, f"no thread can be started ({error})")
        elif self._loop is not None:
            self._ring(self._loop)

    async def close(self) -> None:
        """Lets hooks hear what has happened so far, for a few seconds."""
        thread = self._thread
        if thread is None:
            return
        self._closing = True
        if self._loop is not None:
            self._ring(self._loop)
        await asyncio.to_thread(thread.join, LAST_WORDS_S)
        if left := sum(len(line.waiting) for line in self._lines):
            self.dropped += left
            self._say("stopped", "%d event(s) were not told: the hooks take too long, and the worker ends", left)

    # -- in the thread of the hooks ---------------------------------------------------------------------------------

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # its loop has ended
            loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for line in self._lines:
            line.bell.set()

    def _run(self) -> None:
        asyncio.run(self._serve_all())
        self._threads.close()

    async def _serve_all(self) -> None:
        self._loop = asyncio.get_running_loop()
        await asyncio.gather(*(self._serve(line) for line in self._lines))

    async def _serve(self, line: _Line) -> None:
        calls: set[asyncio.Task[None]] = set()
        while line.waiting or not self._closing:
            line.bell.clear()
            while line.waiting:
                await line.slots.acquire()
                call = asyncio.create_task(self._call(line, line.waiting.popleft()))
                calls.add(call)
                call.add_done_callback(calls.discard)
            if not self._closing:
                await line.bell.wait()
        if calls:
            await asyncio.wait(calls, timeout=self._limit)

    async def _call(self, line: _Line, event: TaskEvent) -> None:
        hook = line.hook
        try:
            async with asyncio.timeout(self._limit):
                value = hook(event) if inspect.iscoroutinefunction(hook) else await self._in_thread(line, event)
                if inspect.isawaitable(value):
                    await value
        except TimeoutError:
            self._failed(hook, event, f"took longer than {self._limit:g} s, and is no longer waited for")
        except CannotStart as error:
            self._drop(hook, str(error))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # also sys.exit(): it is the hook's, and would end all of them
            self._failed(hook, event, f"raised {type(error).__name__}", error)
        finally:
            line.slots.release()

    async def _in_thread(self, line: _Line, event: TaskEvent) -> Any:
        if not line.in_threads.acquire(blocking=False):
            raise CannotStart(f"{AT_ONCE} of its calls hang")

        def call() -> Any:
            try:
                return line.hook(event)
            finally:
                line.in_threads.release()

        try:
            answer = self._threads.submit(call)
        except CannotStart:
            line.in_threads.release()
            raise
        return await answer

    # -- telling of it, once in a while -----------------------------------------------------------------------------

    def _failed(self, hook: Hook, event: TaskEvent, what: str, error: BaseException | None = None) -> None:
        self.raised += 1
        name = name_of(hook)
        self._say(name, "the hook %s of %r %s; tasks are as they are", name, event.name, what, error=error)

    def _drop(self, hook: Hook, why: str) -> None:
        self.dropped += 1
        name = name_of(hook)
        self._say(
            f"dropped:{name}", "events for the hook %s are dropped, %d in all so far: %s", name, self.dropped, why
        )

    def _say(self, about: str, text: str, *args: object, error: BaseException | None = None) -> None:
        now = time.monotonic()
        if now >= self._log_again_at.get(about, 0.0):
            self._log_again_at[about] = now + TELL_EVERY_S
            logger.warning(text, *args, exc_info=error, extra={"event": "hook.trouble"})


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
        return any(map(self._hooks.has_listener, ("recovered", "cancelled", "failed", "dead")))

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
        for name in filter(self._hooks.has_listener, names):
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
        for name in filter(self._hooks.has_listener, names):
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
