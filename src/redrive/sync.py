"""redrive from ordinary code: the same calls, without await."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack
from uuid import UUID

from redrive.errors import RedriveError
from redrive.handlers.new_task import kinds_of
from redrive.handlers.options import EnqueueOptions, check_options
from redrive.kernel.task import Task

T = TypeVar("T")


class Portal:
    """An event loop in a daemon thread, started at first use and again after a fork."""

    def __init__(self) -> None:
        self.reset()
        _portals.add(self)

    def reset(self) -> None:
        """As new. In a forked process the thread does not exist, and nobody would release the lock."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._running()).result()

    def close(self) -> None:
        """Stop the loop, after everything that was opened on it has been closed there."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            if threading.current_thread() is not thread:
                thread.join()

    @property
    def started(self) -> bool:
        return self._loop is not None

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="redrive-sync", daemon=True)
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:  # its end is that of ``asyncio.run``
        runner.get_loop().run_forever()


_portals: weakref.WeakSet[Portal] = weakref.WeakSet()


def _after_fork() -> None:
    for portal in list(_portals):
        portal.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Calls(Protocol):
    """What ``SyncApp`` calls of an ``App``."""

    def connection_in_tests(self, kinds: Iterable[str], on: str | None) -> Any | None: ...

    async def enqueue(self, kind: str, payload: Any = None, **options: Unpack[EnqueueOptions]) -> Task: ...

    async def enqueue_many(
        self, tasks: Sequence[Mapping[str, Any] | tuple[str, Any]], *, connection: Any = None, on: str | None = None
    ) -> list[Task]: ...

    async def get(self, task_id: UUID | str) -> Task | None: ...

    async def cancel(self, task_id: UUID | str, *, actor: str = "app", reason: str | None = None) -> None: ...

    async def retry(self, task_id: UUID | str, *, actor: str = "app", reason: str | None = None) -> None: ...


class SyncApp:
    """``app.sync``: safe from any thread. Not for use inside a running event loop: there, await ``app`` itself."""

    def __init__(self, app: Calls, portal: Portal) -> None:
        self._app = app
        self._portal = portal

    def enqueue(self, kind: str, payload: Any = None, **options: Unpack[EnqueueOptions]) -> Task:
        """See ``App.enqueue``. With a blocking ``connection`` this runs in the caller's own thread."""
        given = check_options(options)
        if given.get("connection") is None:
            given["connection"] = self._app.connection_in_tests((kind,), given.get("on"))
        coroutine = self._app.enqueue(kind, payload, **given)
        return _finish(coroutine) if given["connection"] is not None else self._wait(coroutine, "enqueue")

    def enqueue_many(
        self, tasks: Sequence[Mapping[str, Any] | tuple[str, Any]], *, connection: Any = None, on: str | None = None
    ) -> list[Task]:
        if connection is None:
            connection = self._app.connection_in_tests(kinds_of(tasks), on)
        coroutine = self._app.enqueue_many(tasks, connection=connection, on=on)
        return _finish(coroutine) if connection is not None else self._wait(coroutine, "enqueue_many")

    def get(self, task_id: UUID | str) -> Task | None:
        return self._wait(self._app.get(task_id), "get")

    def cancel(self, task_id: UUID | str, *, actor: str = "app", reason: str | None = None) -> None:
        self._wait(self._app.cancel(task_id, actor=actor, reason=reason), "cancel")

    def retry(self, task_id: UUID | str, *, actor: str = "app", reason: str | None = None) -> None:
        self._wait(self._app.retry(task_id, actor=actor, reason=reason), "retry")

    if not TYPE_CHECKING:  # as of App: a misspelt name is no service

        def __getattr__(self, name: str) -> Any:
            """Returns what a feature puts on the application, to be called without await: ``app.sync.orders``."""
            if name.startswith("_"):
                raise AttributeError(name)
            return SyncService(self, getattr(self._app, name), name)

    def _wait(self, coroutine: Coroutine[Any, Any, T], name: str) -> T:
        """Run it in the thread of the portal. Not on an event loop, which would stand still until it is done, and for
        good if it waits for something on that loop."""
        if asyncio._get_running_loop() is None:
            return self._portal.call(coroutine)
        coroutine.close()
        raise RedriveError(
            f"app.sync.{name}() was called on an event loop, which it would hold up",
            hint=f"write: await app.{name}(…), or call it in a thread: await asyncio.to_thread(…)",
        )

    def close(self) -> None:
        if self._portal.started:
            self._portal.close()


class SyncService:
    """A feature's service without await: its coroutine functions wait for what they return; what they would yield comes
    as a list."""

    def __init__(self, app: SyncApp, service: Any, name: str) -> None:
        self._app = app
        self._service = service
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls a service that is called itself, ``app.sync.batch(…)``: it knows what that is without await."""
        finish = kwargs.get("connection") is not None
        run = _finish if finish else lambda coroutine: self._app._wait(coroutine, self._name)
        return self._service.without_await(run, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._service, name)
        if inspect.isasyncgenfunction(found):
            return lambda *args, **kwargs: self._app._wait(_all_of(found(*args, **kwargs)), f"{self._name}.{name}")
        if not inspect.iscoroutinefunction(found):
            return found

        @wraps(found)
        def call(*args: Any, **kwargs: Any) -> Any:
            coroutine = found(*args, **kwargs)
            given = kwargs if not args else inspect.signature(found).bind(*args, **kwargs).arguments
            if given.get("connection") is not None:
                return _finish(coroutine)
            return self._app._wait(coroutine, f"{self._name}.{name}")

        return call


async def _all_of(many: AsyncIterator[T]) -> list[T]:
    return [one async for one in many]


def _finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits: with a blocking connection, enqueueing has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    coroutine.close()
    raise TypeError("this connection is asynchronous: use `await app.enqueue(..., connection=...)`")
