"""What a handler is given besides its payload."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from redrive.kernel.outcome import Done, StopReason
from redrive.kernel.payload import decode, encode

if TYPE_CHECKING:
    from redrive.kernel.ports.sql import Transaction
    from redrive.kernel.ports.store import Store
    from redrive.kernel.task import Claimed
    from redrive.settings import Settings

logger = logging.getLogger("redrive.task")


class Runtime(Protocol):
    """What the worker does for a running attempt."""

    def note_progress(self, task: Claimed, progress: str) -> None: ...

    def transaction(self, task: Claimed, result: Callable[[], Any]) -> AbstractAsyncContextManager[Transaction]: ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def connection(self) -> str: ...

    @property
    def store(self) -> Store: ...

    @property
    def settings(self) -> Settings: ...


class Context:
    """One attempt of one task. Safe to use from the handler's own thread or coroutine."""

    __slots__ = ("_asked_to_stop", "_done", "_log", "_runtime", "_stop", "_task", "worker_id")

    def __init__(self, task: Claimed, runtime: Runtime, worker_id: str) -> None:
        self._task = task
        self._runtime = runtime
        self._stop: StopReason | None = None
        # The handler knows that it has to stop: it has looked, or was interrupted. What it returns from then on is
        # not the end of its work, unless it says so.
        self._asked_to_stop = False
        self._done: Done | None = None
        self._log: logging.LoggerAdapter[logging.Logger] | None = None
        self.worker_id = worker_id

    @property
    def task(self) -> Claimed:
        """The task as it was claimed: id, kind, queue, group, scope, trace id and so on."""
        return self._task

    @property
    def task_id(self) -> UUID:
        return self._task.id

    @property
    def connection(self) -> str:
        """The name of the connection that the task is on; ``default`` where there is only one."""
        return self._runtime.connection

    @property
    def store(self) -> Store:
        """The store that the task is in, for handlers of features: what they write there is a commit of its own."""
        return self._runtime.store

    @property
    def settings(self) -> Settings:
        """The settings of the worker's application; ``ctx.settings.of(OrderSettings)`` are those of a feature."""
        return self._runtime.settings

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._task.attempt

    @property
    def state(self) -> Any:
        """What the last ``Snooze(…, state=…)`` of this task left behind, or None."""
        return decode(self._task.memo)

    @property
    def cancelled(self) -> bool:
        """True once the task should stop: cancelled by someone, out of time, lease lost, or shutdown.

        A handler that has seen this set and returns has stopped: its task is not completed, but cancelled, failed by
        its timeout, or handed back to be run again. One that finished its work all the same returns ``ctx.done()``.
        """
        return self.stop_reason is not None

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the task should stop; None while it may go on. Looking counts as for ``cancelled``."""
        if self._stop is not None:
            self._asked_to_stop = True
        return self._stop

    def done(self, value: Any = None) -> Done:
        """Say that the work is finished, whoever asked to stop: the task completes. ``return ctx.done(result)``, or
        call it when the last step is done and clean up behind it."""
        self._done = Done(value)
        return self._done

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry the task's id, kind, queue, attempt, trace id and worker."""
        if self._log is None:
            self._log = logging.LoggerAdapter(logger, self.log_fields())
        return self._log

    def log_fields(self) -> dict[str, Any]:
        """What log records of this attempt carry."""
        task = self._task
        return {
            "task_id": str(task.id),
            "kind": task.kind,
            "queue": task.queue,
            "attempt": task.attempt,
            "trace_id": task.trace_id,
            "worker_id": self.worker_id,
        }

    def progress(self, done: Any, total: Any = None, note: str | None = None) -> None:
        """Report progress: a fraction, a count of a total, or any JSON value. Cheap: it is sent about once a second."""
        value = done if total is None and note is None else {"done": done, "total": total, "note": note}
        self._runtime.note_progress(self._task, encode(value, "progress", 16_384))

    def transaction(self) -> TaskTransaction:
        """A transaction of the store's database that also completes this task.

        ``async with ctx.transaction() as tx: await tx.execute(...)``, or plain ``with`` in a ``def`` handler.
        Leaving the block commits the handler's writes and the task's completion together; if the lease was
        lost, both are rolled back and ``LeaseLost`` is raised. An exception inside rolls back and the attempt fails.
        """
        return TaskTransaction(self._runtime, self._task)


class TaskTransaction:
    """Both an async and a plain context manager; ``result`` may be set inside to be stored with the completion."""

    def __init__(self, runtime: Runtime, task: Claimed) -> None:
        self._runtime = runtime
        self._task = task
        self._async: AbstractAsyncContextManager[Any] | None = None
        self._sync: AbstractContextManager[Any] | None = None
        self.result: Any = None

    async def __aenter__(self) -> Any:
        self._async = self._open()
        return await self._async.__aenter__()

    async def __aexit__(self, *error: Any) -> bool | None:
        assert self._async is not None
        return await self._async.__aexit__(*error)

    def __enter__(self) -> Any:
        self._sync = self._open_sync()
        return self._sync.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        assert self._sync is not None
        return self._sync.__exit__(*error)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        async with self._runtime.transaction(self._task, lambda: self.result) as transaction:
            yield transaction

    @contextmanager
    def _open_sync(self) -> Iterator[Any]:
        """Drive the async transaction on the worker's loop from a handler's thread."""
        manager = self._open()

        def wait(awaitable: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(awaitable, self._runtime.loop).result()

        transaction = wait(manager.__aenter__())
        # It was opened in a task of the worker's loop; what this thread calls has to see that it is inside, too.
        try:
            with transaction.entered():
                yield BlockingTransaction(transaction, wait)
        except BaseException as error:
            if not wait(manager.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            wait(manager.__aexit__(None, None, None))


class BlockingTransaction:
    """A transaction for threads: the same methods, without await."""

    def __init__(self, transaction: Transaction, wait: Callable[[Any], Any]) -> None:
        self.transaction = transaction
        self.wait = wait

    def execute(self, sql: str, *args: Any) -> Any:
        return self.wait(self.transaction.execute(sql, *args))

    def fetch(self, sql: str, *args: Any) -> list[Any]:
        found: list[Any] = self.wait(self.transaction.fetch(sql, *args))
        return found
