"""Processes of a storm: those of redrive's own experiments, in this checkout, with a look at what they use."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from redrive_kit.labs import processes
from redrive_kit.labs.processes import TooLate, events_of, until

__all__ = ["ROOT", "Program", "TooLate", "environment", "events_of", "until"]
ROOT = Path(__file__).parents[1]


def environment(**given: str) -> dict[str, str]:
    """What a process of the storm sees: nothing of the developer's own settings."""
    foreign = ("TASK_WORKER", "REDRIVE", "STORM", "PG", "COV_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**kept, "PYTHONPATH": path, "STORM_PARENT": str(os.getpid()), **given}


class Program(processes.Program):
    """One process, which is started in this checkout."""

    def __init__(self, name: str, arguments: list[str], env: dict[str, str], log: Path, *, talks: bool = False) -> None:
        super().__init__(name, arguments, env, log, talks=talks, cwd=ROOT)

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system

    def rss(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)
