"""Bulk handlers: several tasks, one call, one slot."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from redrive.errors import RedriveError
from redrive.kernel.store import ClaimRequest
from redrive.worker.run import Run

if TYPE_CHECKING:
    from redrive.worker.attempts import Attempts
    from redrive.worker.worker import Worker


class BulkCalls:
    """Fills calls up to the handler's size with more of the same kind, beside the hot loop: a store that takes its
    time over that must not hold up what else was claimed."""

    def __init__(self, worker: Worker, attempts: Attempts) -> None:
        self._worker = worker
        self._attempts = attempts
        self._filling: set[asyncio.Task[None]] = set()

    def start(self, runs: list[Run]) -> None:
        filling = self._worker.loop.create_task(self._fill_and_launch(runs))
        self._filling.add(filling)
        filling.add_done_callback(lambda done: self._ended(done, runs))

    def _ended(self, filling: asyncio.Task[None], runs: list[Run]) -> None:
        self._filling.discard(filling)
        error = None if filling.cancelled() else filling.exception()
        if filling.cancelled() or error is not None:  # whatever it was, its tasks end with it
            for run in runs:
                self._attempts.broke(run, error)

    def close(self) -> None:
        for filling in self._filling:
            filling.cancel()

    async def _fill_and_launch(self, runs: list[Run]) -> None:
        handler = runs[0].handler
        assert handler is not None and handler.bulk is not None
        missing = self._room(-len(runs) % handler.bulk)
        if missing:
            # Counted before they are there: other claims are under way, and max_jobs is for all of them.
            self._attempts.claimed += missing
            more = await self._more(handler.kind, missing)
            self._attempts.claimed -= missing - len(more)
            runs = runs + more
        chunks = [runs[i : i + handler.bulk] for i in range(0, len(runs), handler.bulk)]
        for chunk in chunks:
            self._share_slot(chunk)
            future = self._attempts.launch(self._attempts.attempt_bulk(chunk), chunk)
            for run in chunk:
                run.mates = chunk
                run.future = future

    def _room(self, missing: int) -> int:
        """How many more may be claimed, by the options of this worker."""
        options = self._worker.options
        if options.once or self._worker.stopping:
            return 0
        if options.max_jobs is not None:
            missing = min(missing, options.max_jobs - self._attempts.claimed)
        return max(missing, 0)

    async def _more(self, kind: str, count: int) -> list[Run]:
        worker, attempts = self._worker, self._attempts
        want = ClaimRequest(worker.id, worker.options.queues, count, worker.settings.lease, only=kind)
        call = worker.settling.send([], want)
        try:
            found = await worker.settling.answer(call)
        except RedriveError:
            return []  # the call goes out as it is; the hot loop meets the same trouble, and says so
        if not worker.settling.taken(call):
            return []  # handed back by the end of the worker
        return [attempts.hold(task, call.asked, slot=False) for task in found.claimed]

    def _share_slot(self, chunk: list[Run]) -> None:
        """The claim took a slot for each task; a call needs only one."""
        holders = [run for run in chunk if run.slot]
        for run in holders[1:]:
            run.slot = False
        self._attempts.slots += len(holders[1:])
