"""The workers: ``redrive work`` as an operator starts it, any number of times."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from storm.processes import Program, environment, events_of

# Short, so that what a killed worker held comes back within a storm; the shortest that redrive allows is 2 s.
LEASE = 3.0
SHORT = {
    "TASK_WORKER_LEASE_MS": str(int(LEASE * 1000)),
    "TASK_WORKER_INTERVAL_MS": "500",
    "TASK_WORKER_GRACE_MS": "5000",
    # A storm may cost a task many workers; none of them may be the last.
    "TASK_MAX_WORKER_DEATHS": "100",
}
COMMON = {"REDRIVE_LOG": "json", "REDRIVE_APP": "storm.app:app"}


class Fleet:
    """Worker processes by name. A name that is started again is a new process with the same name, as with a
    service manager; every process's log is kept."""

    def __init__(self, url: str, directory: Path, concurrency: int) -> None:
        self.url = url
        self.directory = directory
        self.concurrency = concurrency
        self.workers: dict[str, Program] = {}
        self.started = 0

    def start(
        self,
        name: str,
        *,
        queue: str = "default",
        env: dict[str, str] | None = None,
        launcher: tuple[str, ...] = ("redrive.cli",),
        as_it_comes: bool = False,
    ) -> Program:
        """Start one and do not wait for it. ``launcher`` is what follows ``python -m``; ``as_it_comes`` leaves leases
        and intervals at redrive's defaults."""
        self.started += 1
        log = self.directory / f"worker-{self.started:03d}-{name}.log"
        given = {**COMMON, **({} if as_it_comes else SHORT)}
        given |= {"REDRIVE_URL": self.url, "STORM_DIR": str(self.directory), **(env or {})}
        arguments = [*launcher, "work", "--queue", queue]
        arguments += ["--concurrency", str(self.concurrency), "--id", f"{name}-{self.started}"]
        program = Program(name, arguments, environment(**given), log)
        self.workers[name] = program
        return program

    @property
    def alive(self) -> list[Program]:
        return [worker for worker in self.workers.values() if worker.alive]

    def kill(self, name: str) -> None:
        self.workers[name].kill()

    def stop(self, name: str) -> int:
        """SIGTERM; answers the exit code."""
        return self.workers[name].stop()

    def close(self) -> None:
        for worker in self.workers.values():
            with contextlib.suppress(Exception):
                worker.kill()

    def events(self) -> Iterator[dict[str, Any]]:
        """Everything that any worker of this storm has logged, also those that are gone."""
        for log in sorted(self.directory.glob("worker-*.log")):
            yield from events_of(log)

    def lines(self, counts: Callable[[dict[str, Any]], bool]) -> int:
        return sum(1 for event in self.events() if counts(event))

    def tails(self, lines: int = 5) -> str:
        """For people: how each log ends."""
        said = []
        for log in sorted(self.directory.glob("worker-*.log")):
            said += [f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-lines:]]
        return "\n".join(said)
