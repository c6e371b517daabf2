"""Keeps the jobs of a simulated provider in a file, so that it knows them after a restart, as a real one would."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from redrive.errors import ConfigError
from redrive_kit.simulators.provider.jobs import Job, Jobs

_FIELDS = frozenset(one.name for one in fields(Job))
_TIMES = ("starts_at", "ends_at", "cancelled_at")


class KeptJobs(Jobs):
    """Jobs that are written down, a line for each start and each cancel; the last line of a job is how it is. Times in
    the file are those of the calendar: a monotonic clock begins anew with the machine."""

    def __init__(self, path: Path, seed: int = 0, *, now: float) -> None:
        super().__init__(seed)
        self._path = path
        self._ahead = time.time() - now
        try:
            with path.open("a+", encoding="utf-8") as file:
                file.seek(0)
                self._read(file.readlines())
        except OSError as error:
            raise ConfigError(f"jobs cannot be kept in {path}: {error.strerror}", hint="name another file") from None

    def kept(self, job: Job) -> None:
        line = {**asdict(job), **{name: self._moved(getattr(job, name), self._ahead) for name in _TIMES}}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _read(self, lines: list[str]) -> None:
        for line in lines:
            if (found := _parsed(line)) is not None:
                found |= {name: self._moved(found[name], -self._ahead) for name in _TIMES}
                self.know(Job(**found))

    def _moved(self, at: float | None, by: float) -> float | None:
        return None if at is None else at + by


def _parsed(line: str) -> dict[str, Any] | None:
    """Returns what a line says; None for one that was not written to its end, or by somebody else."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and set(found) == _FIELDS else None
