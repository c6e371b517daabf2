"""What a worker says about itself: that it began, what still runs when it is asked to stop, what came of it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.worker.worker import Worker

KINDS = 10


class Announcer:
    """Lines in the worker's own log: a process that takes half a minute to end says why, whoever embeds the worker."""

    def __init__(self, worker: Worker, where: str) -> None:
        self._worker = worker
        self._where = where
        self._say = worker.report.log.worker

    def started(self) -> None:
        worker, options = self._worker, self._worker.options
        text = f"{worker.id} takes {','.join(options.queues)} from {self._where}, {options.concurrency} at once"
        self._say("worker.started", text, queues=list(options.queues), concurrency=options.concurrency)

    def stopping(self, why: str, hint: str) -> None:
        running, grace = self._running(), self._worker.settings.grace_ms / 1000
        rest = "nothing runs"
        if running:
            verb = "runs and has" if running.total() == 1 else "run and have"
            rest = f"{_counted(running)} still {verb} {grace:g} s to finish" + (f"; {hint}" if hint else "")
        self._stop("worker.stopping", f"{why}: claiming no more; {rest}", "info", running)

    def grace_over(self) -> None:
        running, grace = self._running(), self._worker.settings.grace_ms / 1000
        if running:
            rest = "what is not completed is handed back and uses no attempt"
            text = f"the {grace:g} s are over: stopping {_counted(running)}; {rest}"
            self._stop("worker.grace_over", text, "warning", running)

    def stopped(self) -> None:
        worker, health = self._worker, self._worker.health
        counts = {name: getattr(health, name) for name in ("completed", "requeued", "failed", "cancelled")}
        told = ", ".join(f"{n} {name}" for name, n in counts.items())
        self._say("worker.stopped", f"{worker.id} stopped: {told}", **counts)

    def _running(self) -> Counter[str]:
        """By kind. A handler that goes on after its own transaction has completed the task is waited for, too."""
        unsettled = (run for run in self._worker.runs.values() if not run.settled)
        return Counter(run.task.kind for run in (*unsettled, *self._worker.attempts.trailing.values()))

    def _stop(self, event: str, message: str, level: str, running: Counter[str]) -> None:
        self._say(
            event, message, level, running=running.total(), kinds=dict(running.most_common()),
            grace_ms=self._worker.settings.grace_ms,
        )  # fmt: skip


def _counted(running: Counter[str]) -> str:
    """``3 tasks (2 RENDER, 1 MAIL)``."""
    named = ", ".join(f"{n} {kind}" for kind, n in running.most_common(KINDS))
    more = ", …" if len(running) > KINDS else ""
    total = running.total()
    return f"{total} task{'s' * (total != 1)} ({named}{more})"
