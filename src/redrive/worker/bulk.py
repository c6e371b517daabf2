"""Runs bulk handlers: several tasks, one call, one slot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from redrive.errors import RedriveError
from redrive.kernel.ports.store import ClaimRequest
from redrive.kernel.task import Claimed
from redrive.worker.bulk_room import BulkRoom
from redrive.worker.config import WorkerConfig
from redrive.worker.run import Run
from redrive.worker.settling import Settling
from redrive.worker.state import WorkerState


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
        room: BulkRoom,
        *,
        take: Take,
        launch: Callable[[list[Run]], asyncio.Task[None]],
        broke: Callable[[Run, BaseException | None], None],
    ) -> None:
        self._worker_id = config.id
        self._options = config.options
        self._lease = config.settings.lease
        self._life = state.life
        self._runs = state.runs
        self._settling = settling
        self._places = room
        self._take = take
        self._launch = launch
        self._broke = broke
        self._filling: set[asyncio.Task[None]] = set()

    def start(self, runs: list[Run]) -> None:
        self._places.take(runs[0].task.kind, len(runs))
        filling = self._life.loop.create_task(self._fill_and_launch(runs))
        self._filling.add(filling)
        filling.add_done_callback(lambda done: self._ended(done, runs))

    def _ended(self, filling: asyncio.Task[None], runs: list[Run]) -> None:
        self._filling.discard(filling)
        error = None if filling.cancelled() else filling.exception()
        if filling.cancelled() or error is not None:  # whatever it was, its tasks end with it
            self._places.give_back(runs[0].task.kind, len(runs))
            for run in runs:
                self._broke(run, error)

    def close(self) -> None:
        for filling in self._filling:
            filling.cancel()

    async def _fill_and_launch(self, runs: list[Run]) -> None:
        handler = runs[0].handler
        assert handler is not None and handler.bulk is not None
        missing = self._room(min(-len(runs) % handler.bulk, self._places.left(handler.kind)))
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
        self._places.give_back(kind, count)

    def _room(self, missing: int) -> int:
        """Returns how many more tasks may be claimed for a call, by the options of this worker."""
        options = self._options
        if options.once or self._life.stopping or self._runs.suspect:
            return 0
        if options.max_jobs is not None:
            missing = min(missing, options.max_jobs - self._runs.claimed)
        return max(missing, 0)

    async def _more(self, kind: str, count: int) -> list[Run]:
        want = ClaimRequest(self._worker_id, self._options.queues, count, self._lease, only=kind)
        call = self._settling.send([], want)
        self._places.take(kind, count)
        taken: list[Run] = []
        try:
            found = await self._settling.answer(call)
            if self._settling.taken(call):  # else it was handed back by the end of the worker
                taken = [self._take(task, call.asked, slot=False) for task in found.claimed]
        except RedriveError:
            pass  # the call goes out as it is; the hot loop meets the same trouble, and says so
        finally:
            self._places.give_back(kind, count - len(taken))
        return taken

    def _share_slot(self, chunk: list[Run]) -> None:
        """Frees all slots but one: the claim took one for each task, and a call needs only one."""
        with_slot = [run for run in chunk if run.slot]
        for run in with_slot[1:]:
            run.slot = False
        self._runs.slots += len(with_slot[1:])
