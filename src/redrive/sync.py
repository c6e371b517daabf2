"""redrive from ordinary code: the same calls, without await."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from uuid import UUID

from redrive.handlers.options import EnqueueOptions, check_options
from redrive.kernel.task import Task

if TYPE_CHECKING:
    from redrive.app import App

T = TypeVar("T")


class Portal:
    """An event loop in a daemon thread, started at first use and again after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._running()).result()

    def close(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None and self._pid == os.getpid():
            loop.call_soon_threadsafe(loop.stop)
            if threading.current_thread() is not self._thread:
                self._thread.join()
                loop.close()

    @property
    def started(self) -> bool:
        return self._loop is not None and self._pid == os.getpid()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # After a fork only the forking thread lives on: the parent's loop is a corpse here.
            if self._loop is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="redrive-sync", daemon=True)
                self._thread.start()
            return self._loop


class SyncApp:
    """``app.sync``: safe from any thread. Not for use inside a running event loop: there, await ``app`` itself."""

    def __init__(self, app: App, portal: Portal) -> None:
        self._app = app
        self._portal = portal

    def enqueue(self, kind: str, payload: Any = None, **options: Unpack[EnqueueOptions]) -> Task:
        """See ``App.enqueue``. With a blocking ``connection`` this runs in the caller's own thread."""
        coroutine = self._app.enqueue(kind, payload, **check_options(options))
        return _finish(coroutine) if options.get("connection") is not None else self._portal.call(coroutine)

    def enqueue_many(
        self, tasks: Sequence[Mapping[str, Any] | tuple[str, Any]], *, connection: Any = None
    ) -> list[Task]:
        coroutine = self._app.enqueue_many(tasks, connection=connection)
        return _finish(coroutine) if connection is not None else self._portal.call(coroutine)

    def get(self, task_id: UUID | str) -> Task | None:
        return self._portal.call(self._app.get(task_id))

    def cancel(self, task_id: UUID | str, *, actor: str = "app", reason: str | None = None) -> None:
        self._portal.call(self._app.cancel(task_id, actor=actor, reason=reason))

    def retry(self, task_id: UUID | str, *, actor: str = "app", reason: str | None = None) -> None:
        self._portal.call(self._app.retry(task_id, actor=actor, reason=reason))

    def close(self) -> None:
        if self._portal.started:
            self._portal.close()


def _finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits: with a blocking connection, enqueueing has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    coroutine.close()
    raise TypeError("this connection is asynchronous: use `await app.enqueue(..., connection=...)`")
