"""What the workers use and say while a storm lasts."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import psutil

from storm.processes import Program
from storm.world import World


class Watch:
    """CPU and log lines of the workers that live through the whole storm; the worst one counts."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.figures: dict[str, Any] = {}

    def __enter__(self) -> Watch:
        self._began = time.monotonic()
        self._workers = list(self._world.fleet.alive)
        self._cpu = {worker.pid: worker.cpu_seconds() for worker in self._workers}
        self._logged = {worker.pid: worker.log.stat().st_size for worker in self._workers}
        return self

    def __exit__(self, *_: object) -> None:
        seconds = time.monotonic() - self._began
        used, lines = [0.0], [0]
        for worker in self._workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                used.append(worker.cpu_seconds() - self._cpu[worker.pid])
                lines.append(_other_lines(worker, self._logged[worker.pid]))
        self.figures = {
            "watched_seconds": round(seconds, 2),
            "worker_cpu_seconds": round(max(used), 3),
            "worker_cpu_share": round(max(used) / seconds, 4),
            "worker_log_lines": max(lines),
        }


def _other_lines(worker: Program, offset: int) -> int:
    """Lines that are not about tasks."""
    with worker.log.open("rb") as log:
        log.seek(offset)
        return sum(1 for line in log if not _about_task(line))


def _about_task(line: bytes) -> bool:
    try:
        return str(json.loads(line)["event"]).startswith("task.")
    except (ValueError, KeyError, TypeError):
        return False
