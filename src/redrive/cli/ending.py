"""What a worker says when it is asked to stop: what still runs and how long it may, then what is handed back."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from redrive.worker.worker import Worker

logger = logging.getLogger("redrive.cli")
KINDS = 10


class Ending:
    """Asks one worker to stop, on the loop, and says so. Everything beyond that is the worker's. ``also``: what else is
    to stop with it."""

    def __init__(self, worker: Worker, also: Callable[[], None] = lambda: None) -> None:
        self._worker = worker
        self._also = also
        self._asked = False

    def __call__(self, why: str) -> None:
        if self._asked:
            return
        self._asked = True
        grace = self._worker.settings.grace_ms / 1000
        running = self._running()
        rest = "nothing runs"
        if running:
            verb = "runs and has" if running.total() == 1 else "run and have"
            rest = f"{_counted(running)} still {verb} {grace:g} s to finish; a second signal exits at once"
        self._say(logging.INFO, "worker.stopping", f"{why}: claiming no more; {rest}", running)
        # Before the worker's own clock starts: what it stops is counted while it is still there.
        asyncio.get_running_loop().call_later(grace, self._over, grace)
        self._worker.stop()
        self._also()

    def _over(self, grace: float) -> None:
        running = self._running()
        if running:
            rest = "what is not completed is handed back and uses no attempt"
            text = f"the {grace:g} s are over: stopping {_counted(running)}; {rest}"
            self._say(logging.WARNING, "worker.grace_over", text, running)

    def _running(self) -> Counter[str]:
        """By kind. A handler that goes on after its own transaction has completed the task is waited for, too."""
        unsettled = (run for run in self._worker.runs.values() if not run.settled)
        return Counter(run.task.kind for run in (*unsettled, *self._worker.attempts.trailing.values()))

    def _say(self, level: int, event: str, message: str, running: Counter[str]) -> None:
        fields = {"worker_id": self._worker.id, "running": running.total(), "kinds": dict(running.most_common()),
                  "grace_ms": self._worker.settings.grace_ms}  # fmt: skip
        logger.log(level, "%s", message, extra={"event": event, **fields})


def _counted(running: Counter[str]) -> str:
    """``3 tasks (2 RENDER, 1 MAIL)``."""
    named = ", ".join(f"{n} {kind}" for kind, n in running.most_common(KINDS))
    more = ", …" if len(running) > KINDS else ""
    total = running.total()
    return f"{total} task{'s' * (total != 1)} ({named}{more})"
