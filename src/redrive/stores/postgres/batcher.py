"""Group commit for producers: callers that enqueue at the same time share one statement and one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from redrive.errors import StoreError, StoreUnavailable, StoreUnusable
from redrive.kernel.task import Enqueued, NewTask

MAX_BATCH = 1000
Send = Callable[[Sequence[NewTask]], Awaitable[list[Enqueued]]]


class Batcher:
    """A lone caller is sent at once; whoever arrives while a statement is in flight goes out with the next one."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: list[tuple[Sequence[NewTask], asyncio.Future[list[Enqueued]]]] = []
        self._flusher: asyncio.Task[None] | None = None

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        future: asyncio.Future[list[Enqueued]] = asyncio.get_running_loop().create_future()
        self._waiting.append((tasks, future))
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush(), name="redrive-enqueue")
        # Shielded by being a plain future: a caller that is cancelled leaves the others' commit alone.
        return await future

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch = self._take()
                await self._deliver(batch)
        finally:
            self._flusher = None

    def _take(self) -> list[tuple[Sequence[NewTask], asyncio.Future[list[Enqueued]]]]:
        size = count = 0
        for tasks, _ in self._waiting:
            if count and size + len(tasks) > MAX_BATCH:
                break
            size += len(tasks)
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def _deliver(self, batch: list[tuple[Sequence[NewTask], asyncio.Future[list[Enqueued]]]]) -> None:
        try:
            answers = await self._send([task for tasks, _ in batch for task in tasks])
        except Exception as error:
            if (
                len(batch) == 1
                or isinstance(error, StoreUnavailable | StoreUnusable)
                or not isinstance(error, StoreError | ValueError)
            ):
                for _, future in batch:
                    _reject(future, error)
                return
            # The database refused the batch for somebody's data: one by one, so that only its owner hears of it.
            for single in batch:
                await self._deliver([single])
            return
        start = 0
        for tasks, future in batch:
            if not future.done():
                future.set_result(answers[start : start + len(tasks)])
            start += len(tasks)


def _reject(future: asyncio.Future[list[Enqueued]], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
