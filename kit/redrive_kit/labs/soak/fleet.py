"""The processes of a soak: workers of tasks and of the outbox, as an operator starts them, and its sink."""

from __future__ import annotations

import asyncio
from pathlib import Path

from redrive_kit.labs.processes import Program
from redrive_kit.labs.sinks import SimulatedSink
from redrive_kit.labs.soak.books import PROJECTION, QUEUE
from redrive_kit.labs.workers import OutboxWorker, worker_environment

LEASE_S = 4.0
SHORT = {
    "TASK_WORKER_LEASE_MS": str(int(LEASE_S * 1000)),
    "TASK_WORKER_INTERVAL_MS": "500",
    "TASK_WORKER_GRACE_MS": "5000",
    "TASK_MAX_WORKER_DEATHS": "100",  # a soak may cost a task many workers; none of them may be the last
    "OUTBOX_LEASE_SECONDS": str(LEASE_S),
    "OUTBOX_RECLAIM_INTERVAL_SECONDS": "1",
    "OUTBOX_BASE_BACKOFF_SECONDS": "0.2",
    "OUTBOX_MAX_BACKOFF_SECONDS": "2",
    "OUTBOX_MAX_ATTEMPTS": "10000",
}
TASKS, EVENTS = "tasks", "outbox"


class Fleet:
    """Workers by name. One that is started again is a new process of the same name; every log is kept."""

    def __init__(self, url: str, directory: Path, sink: SimulatedSink, keep_s: float, *, fresh: bool) -> None:
        self._url = url
        self.directory = directory
        self.sink = sink
        self._keep_s = keep_s
        self._fresh = fresh
        self._started = 0
        self.workers: dict[str, Program] = {}  # those that are meant to live
        self._all: list[Program] = []

    def start(self, name: str) -> Program:
        """Starts ``tasks-1`` or ``outbox-1``, and does not wait for it."""
        self._started += 1
        number = f"{self._started:03d}"
        if name.startswith(EVENTS):
            made: Program = OutboxWorker(
                f"{number}-{name}",
                PROJECTION,
                self._environment(),
                self.directory,
                cwd=self._cwd,
                lives_s=self._keep_s,
            )
        else:
            arguments = ["redrive.cli", "work", "--queue", QUEUE, "--concurrency", "5", "--id", f"soak-{number}-{name}"]
            arguments += ["--max-time", str(round(self._keep_s))]
            log = self.directory / f"worker-{number}-{name}.log"
            app = {"REDRIVE_APP": "redrive_kit.labs.soak.app:app"}
            made = Program(name, arguments, self._environment() | app, log, cwd=self._cwd)
        self.workers[name] = made
        self._all.append(made)
        return made

    def take(self, name: str) -> Program:
        """Returns a worker that is about to end, and is not missed."""
        return self.workers.pop(name)

    def _environment(self) -> dict[str, str]:
        given = {**SHORT, "SOAK_DIRECTORY": str(self.directory)}
        return worker_environment(self._url, PROJECTION, self.sink.url, given, self._keep_s, fresh=self._fresh)

    @property
    def _cwd(self) -> Path | None:
        return self.directory if self._fresh else None

    def projecting(self) -> list[OutboxWorker]:
        """Returns the live workers of the outbox."""
        return [one for one in self.workers.values() if isinstance(one, OutboxWorker) and one.alive]

    def dead(self) -> list[str]:
        """Returns those that ended by themselves."""
        return [name for name, one in self.workers.items() if not one.alive]

    async def close(self) -> None:
        for worker in self._all:
            await asyncio.to_thread(worker.kill)
        await self.sink.close()
