"""One bounded pass over the remote batches: dispatch, start, poll, settle, each as far as the settings allow.

For platforms that wake a program by HTTP. It is the ordinary worker, of one queue after the other, that takes so many
tasks and ends. A queue holds items to be started and items to be polled; which of them a pass may still do is asked by
their handler (``Pass.may_start``, ``Pass.may_poll``), and the others go to the end of their queue.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from redrive.batches.names import DISPATCH_QUEUE, FEATURE, QUEUE, SETTLE_QUEUE
from redrive.batches.settings import BatchSettings
from redrive.kernel.task import State
from redrive.settings import Options

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.kernel.ports.store import Store
    from redrive.worker.worker import Worker

QUEUES = (DISPATCH_QUEUE, QUEUE, SETTLE_QUEUE)
MOST_ITEMS = 1_000  # that a pass takes: it has to end while its caller waits
Run = Callable[["Worker"], Awaitable[None]]


@dataclass(slots=True)
class Pass:
    """What a pass may do, and what it has done so far."""

    max_start: int
    max_poll: int
    dispatched: int = 0
    started: int = 0
    polled: int = 0
    settled: int = 0
    released: int = 0
    completed: int = 0
    failed: int = 0
    put_off: int = 0
    seconds: float = 0.0
    more: bool = False  # something is due that it was not allowed, or had no time, to do
    _starts: Counter[str] = field(default_factory=Counter)
    _refused: set[UUID] = field(default_factory=set)
    _enough: Callable[[], None] = lambda: None

    def begin(self, worker: Worker) -> None:
        self._refused.clear()
        self._enough = worker.drain

    def may_start(self, task: UUID, batch: str) -> bool:
        """Takes one of the starts that a batch has in a pass; False when they are used up."""
        if self._starts[batch] >= self.max_start:
            return self._refuse(task)
        self._starts[batch] += 1
        return True

    def may_poll(self, task: UUID) -> bool:
        """Takes one of the polls of a pass; False when they are used up."""
        if self.polled >= self.max_poll:
            return self._refuse(task)
        self.polled += 1
        return True

    def _refuse(self, task: UUID) -> bool:
        """Leaves an item to the next pass: it goes to the end of its queue. When it is met again, the pass has seen all
        that is there, and takes no more."""
        if task in self._refused:
            self._enough()
        else:
            self._refused.add(task)
            self.put_off += 1
        return False


class Passes:
    """The passes of an application that are under way, by the ids of their workers."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._settings = app.settings.of(BatchSettings)
        self._running: dict[str, Pass] = {}

    def of(self, worker_id: str) -> Pass | None:
        """Returns the pass that a worker makes; None for a worker that goes on."""
        return self._running.get(worker_id)

    async def make(self, run: Run, seconds: float, on: str | None = None) -> Pass:
        """Makes one pass, with workers that ``run`` runs, and begins nothing after so many seconds."""
        own, began = self._settings, time.monotonic()
        made = Pass(own.max_start, own.max_poll)
        store = await self._app.at(on).store()
        for queue in QUEUES:
            left = seconds - (time.monotonic() - began)
            if left <= 0:
                break
            most = await self._most(store, queue)
            worker = self._app.worker(store, self._options(queue, most, left), on=on)
            self._running[worker.id] = made
            made.begin(worker)
            try:
                await run(worker)
            finally:
                del self._running[worker.id]
            made.completed += worker.health.completed if queue == QUEUE else 0
            made.failed += worker.health.failed if queue == QUEUE else 0
        made.seconds = time.monotonic() - began
        made.more = bool(made.put_off) or await _anything_due(store)
        return made

    async def _most(self, store: Store, queue: str) -> int:
        """Returns how many tasks of a queue a pass takes. Of each batch so many items wait to be started at most."""
        own = self._settings
        if queue != QUEUE:
            return own.max_claim if queue == DISPATCH_QUEUE else own.max_settle
        [row] = await store.sql.feature_rows(FEATURE, "remote_processing")
        return min(own.max_poll + own.max_start * int(row["batches"]), max(MOST_ITEMS, own.max_poll))

    def _options(self, queue: str, most: int, seconds: float) -> Options:
        sleep = self._app.settings.interval
        # As many at once as it takes: one request to the provider serves many items.
        return Options(
            queues=(queue,), concurrency=most, sleep=sleep, max_jobs=most, max_time=seconds, stop_when_empty=True
        )


async def _anything_due(store: Store) -> bool:
    """Returns whether tasks are ready that no open circuit holds back."""
    overview = await store.overview()
    return any(
        count.queue in QUEUES and count.state is State.QUEUED and count.n and overview.circuit_of(count.kind) is None
        for count in await store.counts()
    )
