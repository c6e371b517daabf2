"""How a worker starts and ends: within somebody else's program, and in the words of its log."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from redrive.observe.logs import TaskLog
from redrive.worker.config import WorkerConfig
from redrive.worker.state import WorkerState

logger = logging.getLogger("redrive.worker")


async def wait_until_stopped(work: asyncio.Task[None], stop: Callable[[], None]) -> None:
    """Waits for a worker's task to end. A cancellation asks it to stop, and is passed on when it has; a second one cuts
    it off. Further ones change nothing: handing back takes seconds at most, and not handing back a whole lease."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])  # unlike `await work`, leaves it alone when this is cancelled
        except asyncio.CancelledError as error:
            if cancelled is None:
                stop()
            elif not work.cancelling():
                work.cancel()
            cancelled = error
    died = not work.cancelled() and work.exception() is not None
    if cancelled is not None and not died:
        raise cancelled
    work.result()


class Background:
    """Runs a worker beside the block of an ``async with``; calls ``on_death`` with what it dies of meanwhile."""

    def __init__(
        self,
        run: Coroutine[Any, Any, None],
        stop: Callable[[str], None],
        begun: Callable[[], Coroutine[Any, Any, object]],
        on_death: Callable[[BaseException], None],
    ) -> None:
        self._stop = stop
        self._begun = begun
        self._on_death = on_death
        self._task = asyncio.create_task(run, name="redrive-background")

    async def begin(self) -> None:
        """Starts the worker and waits for its first contact with the store, so that an unusable store is raised here.
        For one that cannot be reached, the worker waits in the background."""
        begun = asyncio.create_task(self._begun(), name="redrive-begun")
        try:
            await asyncio.wait([begun, self._task], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.end()
            raise
        finally:
            begun.cancel()
        if self._task.done():
            self._task.result()
        self._task.add_done_callback(self._ended)

    async def end(self) -> None:
        """Stops the worker and waits until everything that ran has ended or was handed back; raises what the worker
        died of."""
        self._stop("the block is left")
        await self._task

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_death(error)


MOST_KINDS_LISTED = 10


class Announcer:
    """Writes the worker's own log lines, so that a process that takes half a minute to end says why."""

    def __init__(self, config: WorkerConfig, state: WorkerState, log: TaskLog) -> None:
        self._worker_id = config.id
        self._say = log.worker
        self._runs = state.runs
        self._health = state.health
        self._options = config.options
        self._grace_ms = config.settings.grace_ms
        self._where = config.where
        self._env = config.settings.env
        self._started = False

    def started(self) -> None:
        """Logs ``worker.started``."""
        self._started = True
        options = self._options
        text = f"{self._worker_id} takes {','.join(options.queues)} from {self._where}, {options.concurrency} at once"
        queues, at_once = list(options.queues), options.concurrency
        self._say("worker.started", f"{text} ({self._env})", queues=queues, concurrency=at_once, env=self._env)

    def stopping(self, why: str, hint: str) -> None:
        """Logs ``worker.stopping``, with what still runs."""
        running = self._running()
        rest = "nothing runs"
        if running:
            verb = "runs and has" if running.total() == 1 else "run and have"
            rest = f"{_counted(running)} still {verb} {self._grace_ms / 1000:g} s to finish"
            rest += f"; {hint}" if hint else ""
        self._stop("worker.stopping", f"{why}: claiming no more; {rest}", "info", running)

    def grace_over(self) -> None:
        """Logs that the grace period is over and what still runs is handed back."""
        running = self._running()
        if running:
            rest = "what is not completed is handed back and uses no attempt"
            text = f"the {self._grace_ms / 1000:g} s are over: stopping {_counted(running)}; {rest}"
            self._stop("worker.grace_over", text, "warning", running)

    def draining(self) -> None:
        """Logs that somebody has asked this worker to end, and what it finishes before."""
        running = self._running()
        rest = f"{_counted(running)} will be finished first" if running else "nothing runs"
        self._say("worker.draining", f"asked to drain: claiming no more; {rest}", running=running.total())

    def had_enough(self, why: str) -> None:
        """Logs that an option has this worker end now, and what it finishes before."""
        running = self._running()
        rest = f"{_counted(running)} will be finished first" if running else "nothing runs"
        self._say("worker.had_enough", f"{why}: claiming no more; {rest}", running=running.total())

    def declared_dead(self) -> None:
        """Logs that others have taken this worker for dead: it was stopped or cut off for too long."""
        text = f"{self._worker_id} was taken for dead: nobody had heard of it; asking which of its leases are left"
        self._say("worker.cut_off", text, "warning", running=self._running().total())

    def stopped(self) -> None:
        """Logs ``worker.stopped``, with what the worker did, if it had started."""
        if not self._started:
            return
        counts = {name: getattr(self._health, name) for name in ("completed", "requeued", "failed", "cancelled")}
        totals = ", ".join(f"{n} {name}" for name, n in counts.items())
        self._say("worker.stopped", f"{self._worker_id} stopped: {totals}", **counts)

    def died(self, error: BaseException) -> None:
        """Logs ``worker.died``, as a line and as a record of ``logging``: whoever runs the worker beside other things
        may look much later, or never."""
        text = f"worker {self._worker_id} ended by an error, and its process runs no tasks any more: {error}"
        self._say("worker.died", f"{text} → restart the process", "error", error=type(error).__name__)
        logger.error(text, exc_info=error, extra={"event": "worker.died", "worker_id": self._worker_id})

    def _running(self) -> Counter[str]:
        """Returns how many handlers run, by kind; one that goes on after its own transaction completed the task counts,
        too."""
        unsettled = (run for run in self._runs.values() if not run.settled)
        return Counter(run.task.kind for run in (*unsettled, *self._runs.trailing.values()))

    def _stop(self, event: str, message: str, level: str, running: Counter[str]) -> None:
        self._say(
            event, message, level, running=running.total(), kinds=dict(running.most_common()), grace_ms=self._grace_ms
        )


def _counted(running: Counter[str]) -> str:
    """Returns such numbers as text: ``3 tasks (2 RENDER, 1 MAIL)``."""
    named = ", ".join(f"{n} {kind}" for kind, n in running.most_common(MOST_KINDS_LISTED))
    more = ", …" if len(running) > MOST_KINDS_LISTED else ""
    total = running.total()
    return f"{total} task{'s' * (total != 1)} ({named}{more})"
