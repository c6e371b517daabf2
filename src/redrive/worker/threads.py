"""Runs ``def`` handlers in daemon threads: one that never comes back does not hold up the others."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

from redrive.worker.forks import Home

_Job = tuple[contextvars.Context, Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class NoRoom(Exception):
    """Raised when a handler could not be begun, because this process may have no more threads, processes or files."""


def begin(thread: threading.Thread) -> None:
    """Starts a thread."""
    try:
        thread.start()
    except (RuntimeError, MemoryError, OSError) as error:
        raise NoRoom(str(error) or type(error).__name__) from error


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
            begin(thread)
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
