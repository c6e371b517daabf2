"""Runs ``def`` handlers in daemon threads, and takes fewer tasks while this process can have no more threads, processes
or files.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from redrive.worker.forks import Home
from redrive.worker.run import Run
from redrive.worker.state import WorkerState

logger = logging.getLogger("redrive.worker")

_Job = tuple[contextvars.Context, Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class CannotStart(Exception):
    """Raised when a handler could not be begun, because this process may have no more threads, processes or files."""


def start_thread(thread: threading.Thread) -> None:
    """Starts a thread."""
    try:
        thread.start()
    except (RuntimeError, MemoryError, OSError) as error:
        raise CannotStart(str(error) or type(error).__name__) from error


class ThreadPool:
    """Reuses idle threads and makes a new one when there is none; the worker's slots bound their number."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[_Job | None]] = []
        self._lock = threading.Lock()
        self._home = Home()
        self._count = 0
        self.started = 0

    def submit(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = queue.SimpleQueue()
            self._count += 1
            thread = threading.Thread(
                target=self._serve, args=(inbox,), name=f"redrive-handler-{self._count}", daemon=True
            )
            start_thread(thread)
            self.started += 1
        inbox.put((contextvars.copy_context(), call, loop, future))
        return future

    def close(self) -> None:
        with self._lock:
            for inbox in self._idle:
                inbox.put(None)
            self._idle.clear()

    def _serve(self, inbox: queue.SimpleQueue[_Job | None]) -> None:
        while (job := inbox.get()) is not None:
            context, call, loop, future = job
            try:
                result, error = context.run(call), None
            except BaseException as raised:  # also SystemExit: a handler must not end a thread silently
                result, error = None, raised
            self._home.end_if_forked()
            with self._lock:
                self._idle.append(inbox)
            _post(loop, future, result, error)
            del job, context, call, loop, future, result, error


def _post(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], result: Any, error: BaseException | None
) -> None:
    def settle() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            # A future refuses StopIteration; wrapped, it is reported like any other failure.
            future.set_exception(
                RuntimeError("handler raised StopIteration") if isinstance(error, StopIteration) else error
            )

    # RuntimeError: the loop is gone, because the worker stopped while this handler was still running.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(settle)


FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
GROW_EVERY_S = 5.0
CALM_AFTER_S = 60.0
HINT = "raise the limits of its container (processes, memory, open files), or lower --concurrency"


class Shortage:
    """Withholds slots of a worker from the moment on that a handler could not be begun, and gives them back little by
    little. What runs keeps its slot: so as many run as there is room for. Without it, the worker that can do nothing
    would be the quickest of the fleet to take the next tasks."""

    def __init__(self, worker_id: str, state: WorkerState, started: Callable[[], int]) -> None:
        self._worker_id = worker_id
        self._runs = state.runs
        self._health = state.health
        self._signal = state.signal
        # How many threads and processes were started: one more than before is the proof that there is room.
        self._started = started
        self._started_before = 0
        self._timer: asyncio.TimerHandle | None = None
        self._paused_until = 0.0
        self._pause = FIRST_PAUSE_S
        self._next = 1
        self._last = 0.0

    def note(self, run: Run, why: str) -> None:
        """Notes that a handler could not be begun; its slot, and all free ones, are withheld."""
        self._runs.withhold(run)
        now = self._last = time.monotonic()
        self._started_before = self._started()
        if now < self._paused_until:  # another one of the same claim
            return
        if self._health.cramped is None:
            self._pause = FIRST_PAUSE_S
            text = "no handler can be begun here (%s): taking fewer tasks, and handing back what was not begun → %s"
            logger.error(text, why, HINT, extra={"event": "worker.no_room", "worker_id": self._worker_id})
        else:
            self._pause = min(self._pause * 2, LONGEST_PAUSE_S)
        self._health.cramped = why
        self._next = 1
        self._paused_until = now + self._pause
        self._plan(self._pause)

    def _plan(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._give_back)

    def _give_back(self) -> None:
        """Gives some slots back, more each time for as long as nothing is missing."""
        self._timer = None
        self._runs.give_back(self._next)
        self._next *= 2
        proven = self._started() > self._started_before or time.monotonic() - self._last >= CALM_AFTER_S
        if self._runs.withheld or not proven:
            self._plan(GROW_EVERY_S)
        else:
            self._health.cramped = None
            logger.info(
                "handlers can be begun again", extra={"event": "worker.room_again", "worker_id": self._worker_id}
            )
        self._signal.look()
