"""Runs bulk handlers: several tasks, one call, one slot; and bounds how many of them a worker has in its memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Protocol

from redrive.errors import RedriveError
from redrive.handlers.registry import Registry
from redrive.kernel.ports.store import ClaimRequest
from redrive.kernel.task import Claimed
from redrive.worker.config import WorkerConfig
from redrive.worker.run import Run
from redrive.worker.settling import Settling
from redrive.worker.state import LoopSignal, WorkerState

# Of one kind, in calls that run or are being filled up. One claim more may come, and what is not settled yet is still
# there: 5,000 with the claims of a worker of 1,000 slots.
MOST_IN_CALLS = 4_000


class BulkLimit:
    """Counts tasks of each bulk kind from their claim to the end of their call. A queue in which all kinds of this
    application are bulk kinds is not claimed from while one of them has enough: its tasks would wait in memory, with
    leases that have to be renewed, and others could not take them. Slots stay free for other queues meanwhile."""

    def __init__(self, registry: Registry, queues: tuple[str, ...], signal: LoopSignal) -> None:
        self._queues = queues
        self._signal = signal
        self._in_calls: Counter[str] = Counter()
        self._full: set[str] = set()  # queues
        kinds = list(registry.handlers.values())
        mixed = {handler.queue for handler in kinds if not handler.bulk}
        self._queue_of = {handler.kind: handler.queue for handler in kinds if handler.queue not in mixed}

    def queues(self) -> tuple[str, ...]:
        """Returns the queues that the worker may claim from now, in their order."""
        return self._queues if not self._full else tuple(one for one in self._queues if one not in self._full)

    def left(self, kind: str) -> int:
        """Returns how many more tasks of a kind may be claimed to fill up a call."""
        return max(MOST_IN_CALLS - self._in_calls[kind], 0) if kind in self._queue_of else MOST_IN_CALLS

    def take(self, kind: str, count: int) -> None:
        """Counts tasks that are claimed for calls."""
        self._in_calls[kind] += count
        if self._in_calls[kind] >= MOST_IN_CALLS and kind in self._queue_of:
            self._full.add(self._queue_of[kind])

    def give_back(self, kind: str, count: int) -> None:
        """Counts tasks whose call has ended, or that did not come; there may be more to claim."""
        self._in_calls[kind] -= count
        queue = self._queue_of.get(kind)
        if queue in self._full and self._in_calls[kind] < MOST_IN_CALLS:
            self._full.discard(queue)
            self._signal.look()


class Take(Protocol):
    """The signature of ``Attempts.take``: makes a run of a claimed task."""

    def __call__(self, task: Claimed, asked: float, *, slot: bool = True) -> Run: ...


class BulkCalls:
    """Fills calls up to the handler's size with more of the same kind, beside the hot loop: a store that takes its
    time over that must not hold up what else was claimed. ``launch`` begins a call, ``broke`` hears of a task that
    was to be part of one, and of what went wrong."""

    def __init__(
        self,
        config: WorkerConfig,
        state: WorkerState,
        settling: Settling,
        limit: BulkLimit,
        *,
        take: Take,
        launch: Callable[[list[Run]], asyncio.Task[None]],
        broke: Callable[[Run, BaseException | None], None],
    ) -> None:
        self._worker_id = config.id
        self._options = config.options
        self._lease = config.settings.lease
        self._lifecycle = state.lifecycle
        self._runs = state.runs
        self._settling = settling
        self._limit = limit
        self._take = take
        self._launch = launch
        self._broke = broke
        self._filling: set[asyncio.Task[None]] = set()

    def start(self, runs: list[Run]) -> None:
        self._limit.take(runs[0].task.kind, len(runs))
        filling = self._lifecycle.loop.create_task(self._fill_and_launch(runs))
        self._filling.add(filling)
        filling.add_done_callback(lambda done: self._ended(done, runs))

    def _ended(self, filling: asyncio.Task[None], runs: list[Run]) -> None:
        self._filling.discard(filling)
        error = None if filling.cancelled() else filling.exception()
        if filling.cancelled() or error is not None:  # whatever it was, its tasks end with it
            self._limit.give_back(runs[0].task.kind, len(runs))
            for run in runs:
                self._broke(run, error)

    def close(self) -> None:
        for filling in self._filling:
            filling.cancel()

    async def _fill_and_launch(self, runs: list[Run]) -> None:
        handler = runs[0].handler
        assert handler is not None and handler.bulk is not None
        missing = self._allowed(min(-len(runs) % handler.bulk, self._limit.left(handler.kind)))
        if missing:
            # Counted before they are there: other claims are under way, and max_jobs is for all of them.
            self._runs.claimed += missing
            more = await self._more(handler.kind, missing)
            self._runs.claimed -= missing - len(more)
            runs = runs + more
        chunks = [runs[i : i + handler.bulk] for i in range(0, len(runs), handler.bulk)]
        for chunk in chunks:
            self._share_slot(chunk)
            future = self._launch(chunk)
            future.add_done_callback(partial(self._over, handler.kind, len(chunk)))
            for run in chunk:
                run.mates = chunk
                run.future = future

    def _over(self, kind: str, count: int, _: asyncio.Task[None]) -> None:
        self._limit.give_back(kind, count)

    def _allowed(self, missing: int) -> int:
        """Returns how many more tasks may be claimed for a call, by the options of this worker."""
        options = self._options
        if options.once or self._lifecycle.stopping or self._runs.suspect:
            return 0
        if options.max_jobs is not None:
            missing = min(missing, options.max_jobs - self._runs.claimed)
        return max(missing, 0)

    async def _more(self, kind: str, count: int) -> list[Run]:
        want = ClaimRequest(self._worker_id, self._options.queues, count, self._lease, only=kind)
        call = self._settling.send([], want)
        self._limit.take(kind, count)
        taken: list[Run] = []
        try:
            found = await self._settling.answer(call)
            if self._settling.take_answer(call):  # else it was handed back by the end of the worker
                taken = [self._take(task, call.asked, slot=False) for task in found.claimed]
        except RedriveError:
            pass  # the call goes out as it is; the hot loop meets the same trouble, and says so
        finally:
            self._limit.give_back(kind, count - len(taken))
        return taken

    def _share_slot(self, chunk: list[Run]) -> None:
        """Frees all slots but one: the claim took one for each task, and a call needs only one."""
        with_slot = [run for run in chunk if run.slot]
        for run in with_slot[1:]:
            run.slot = False
        self._runs.slots += len(with_slot[1:])
