"""Commits enqueues of callers together that come at the same time: they share one statement and one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from redrive.errors import StoreError, StoreUnavailable, StoreUnusable
from redrive.kernel.task import Enqueued, NewTask
from redrive.stores.postgres.errors import KeyBlocked

MAX_TASKS_PER_STATEMENT = 1000
# Two: while the server is at one statement, the callers of the other prepare their next tasks.
STATEMENTS_AT_ONCE = 2
Send = Callable[[Sequence[NewTask]], Awaitable[list[Enqueued]]]
Waiting = tuple[Sequence[NewTask], asyncio.Future[list[Enqueued]]]


class SharedEnqueue:
    """Sends a lone caller at once, by itself; whoever arrives meanwhile goes out together."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: list[Waiting] = []
        self._in_flight = 0
        self._flushers: set[asyncio.Task[None]] = set()

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        if self._in_flight == 0:
            # Nobody else's commit depends on this caller, who may be cancelled: no task of its own is needed.
            self._in_flight += 1
            try:
                return await self._send(tasks)
            finally:
                self._landed()
        future: asyncio.Future[list[Enqueued]] = asyncio.get_running_loop().create_future()
        self._waiting.append((tasks, future))
        if self._in_flight < STATEMENTS_AT_ONCE:
            self._start()
        # Shielded by being a plain future: a caller that is cancelled leaves the others' commit alone.
        return await future

    def _start(self) -> None:
        self._in_flight += 1
        flusher = asyncio.create_task(self._flush(), name="redrive-enqueue")
        self._flushers.add(flusher)
        flusher.add_done_callback(self._flushers.discard)

    def _landed(self) -> None:
        self._in_flight -= 1
        if self._waiting and self._in_flight < STATEMENTS_AT_ONCE:
            self._start()

    async def _flush(self) -> None:
        callers = self._take()
        try:
            if callers:
                await self._deliver(callers)
        except asyncio.CancelledError:  # by somebody who cancels whatever he finds: do not leave them waiting
            for _, future in callers:
                future.cancel()
            raise
        finally:
            self._landed()

    def _take(self) -> list[Waiting]:
        size = count = 0
        for tasks, _ in self._waiting:
            if count and size + len(tasks) > MAX_TASKS_PER_STATEMENT:
                break
            size += len(tasks)
            count += 1
        callers, self._waiting = self._waiting[:count], self._waiting[count:]
        return callers

    async def _deliver(self, callers: list[Waiting]) -> None:
        try:
            answers = await self._send([task for tasks, _ in callers for task in tasks])
        except Exception as error:
            if (
                len(callers) == 1
                or isinstance(error, StoreUnavailable | StoreUnusable | KeyBlocked)
                or not isinstance(error, StoreError | ValueError)
            ):
                for _, future in callers:
                    _reject(future, error)
                return
            # The database refused all for somebody's data: one by one, so that only its owner hears of it.
            for single in callers:
                await self._deliver([single])
            return
        start = 0
        for tasks, future in callers:
            if not future.done():
                future.set_result(answers[start : start + len(tasks)])
            start += len(tasks)


def _reject(future: asyncio.Future[list[Enqueued]], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
