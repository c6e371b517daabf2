"""What a worker says about itself: that it began, what still runs when it is asked to stop, what came of it."""

from __future__ import annotations

from collections import Counter

from redrive.observe.health import Health
from redrive.observe.logs import TaskLog
from redrive.settings import Options
from redrive.worker.runs import Runs

KINDS = 10


class Announcer:
    """Lines in the worker's own log: a process that takes half a minute to end says why, whoever embeds the worker."""

    def __init__(
        self, worker_id: str, log: TaskLog, runs: Runs, health: Health, options: Options, *, grace_ms: int, where: str
    ) -> None:
        self._worker_id = worker_id
        self._say = log.worker
        self._runs = runs
        self._health = health
        self._options = options
        self._grace_ms = grace_ms
        self._where = where

    def started(self) -> None:
        options = self._options
        text = f"{self._worker_id} takes {','.join(options.queues)} from {self._where}, {options.concurrency} at once"
        self._say("worker.started", text, queues=list(options.queues), concurrency=options.concurrency)

    def stopping(self, why: str, hint: str) -> None:
        running = self._running()
        rest = "nothing runs"
        if running:
            verb = "runs and has" if running.total() == 1 else "run and have"
            rest = f"{_counted(running)} still {verb} {self._grace_ms / 1000:g} s to finish"
            rest += f"; {hint}" if hint else ""
        self._stop("worker.stopping", f"{why}: claiming no more; {rest}", "info", running)

    def grace_over(self) -> None:
        running = self._running()
        if running:
            rest = "what is not completed is handed back and uses no attempt"
            text = f"the {self._grace_ms / 1000:g} s are over: stopping {_counted(running)}; {rest}"
            self._stop("worker.grace_over", text, "warning", running)

    def stopped(self) -> None:
        counts = {name: getattr(self._health, name) for name in ("completed", "requeued", "failed", "cancelled")}
        told = ", ".join(f"{n} {name}" for name, n in counts.items())
        self._say("worker.stopped", f"{self._worker_id} stopped: {told}", **counts)

    def _running(self) -> Counter[str]:
        """By kind. A handler that goes on after its own transaction has completed the task is waited for, too."""
        unsettled = (run for run in self._runs.values() if not run.settled)
        return Counter(run.task.kind for run in (*unsettled, *self._runs.trailing.values()))

    def _stop(self, event: str, message: str, level: str, running: Counter[str]) -> None:
        self._say(
            event, message, level, running=running.total(), kinds=dict(running.most_common()), grace_ms=self._grace_ms
        )


def _counted(running: Counter[str]) -> str:
    """``3 tasks (2 RENDER, 1 MAIL)``."""
    named = ", ".join(f"{n} {kind}" for kind, n in running.most_common(KINDS))
    more = ", …" if len(running) > KINDS else ""
    total = running.total()
    return f"{total} task{'s' * (total != 1)} ({named}{more})"
