"""The jobs of a simulated provider. What became of one follows from the time that has passed; nothing has to run."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from redrive.errors import ConfigError, InvalidInput
from redrive_kit.simulators.provider.behaviour import FAILURES, Behaviour

SUCCEED = "succeed"
_TIMES = ("starts_at", "ends_at", "cancelled_at")
MAX_ECHO = 2_000  # characters of a payload that a result repeats


@dataclass(slots=True)
class Job:
    """A job that was started. ``outcome`` is ``succeed`` or why it will fail."""

    id: str
    key: str | None
    outcome: str
    starts_at: float
    ends_at: float
    steps: int
    payload: Any = None
    callback_url: str | None = None
    cancelled_at: float | None = None

    def ended(self, now: float) -> bool:
        return self.cancelled_at is not None or now >= self.ends_at

    def document(self, now: float) -> dict[str, Any]:
        """Returns the job as the provider shows it."""
        if self.cancelled_at is not None:
            return {"id": self.id, "status": "cancelled"}
        if now < self.starts_at:
            return {"id": self.id, "status": "queued", "progress": 0}
        if now < self.ends_at:
            return {"id": self.id, "status": "running", "progress": self._progress(now)}
        if self.outcome == SUCCEED:
            return {"id": self.id, "status": "succeeded", "progress": 100, "result": {"echo": self.payload}}
        message, code, status = FAILURES[self.outcome]
        return {"id": self.id, "status": "failed", "error": {"message": message, "code": code, "status": status}}

    def _progress(self, now: float) -> int:
        share = (now - self.starts_at) / (self.ends_at - self.starts_at)
        return int(int(share * self.steps) * 100 / self.steps)


class Jobs:
    """All jobs, and how often each key was started. ``seed`` decides what is left to chance: the same key has the same
    fate each time."""

    def __init__(self, seed: int = 0) -> None:
        self.by_id: dict[str, Job] = {}
        self.keys: Counter[str] = Counter()
        self.polls: Counter[str] = Counter()
        self.poll_requests = 0
        self.most_at_once = 0  # jobs that had not ended
        self._running: list[Job] = []
        self._by_key: dict[str, Job] = {}
        self._seed = seed

    def start(
        self, key: str | None, payload: Any, behaviour: Behaviour, now: float, callback_url: str | None = None
    ) -> tuple[Job, bool]:
        """Starts a job, or returns the one that this key has started, and whether it is new."""
        if key is not None:
            self.keys[key] += 1
            if key in self._by_key:
                return self._by_key[key], False
        job = self._made(key, payload, behaviour, now)
        job.callback_url = callback_url
        self.know(job)
        self.kept(job)
        self._running = [one for one in self._running if not one.ended(now)] + [job]
        self.most_at_once = max(self.most_at_once, len(self._running))
        return job, True

    def know(self, job: Job) -> None:
        """Takes a job up, as it is."""
        self.by_id[job.id] = job
        if job.key is not None:
            self._by_key[job.key] = job

    def kept(self, job: Job) -> None:
        """Called when a job has changed; see ``KeptJobs``."""

    def cancel(self, job: Job, now: float) -> None:
        if not job.ended(now):
            job.cancelled_at = now
            self.kept(job)

    def seen(self) -> dict[str, Any]:
        """Returns what was asked of this provider so far."""
        return {
            "jobs": len(self.by_id),
            "starts": self.keys.total(),
            "keys": dict(self.keys),
            "poll_requests": self.poll_requests,
            "polls": dict(self.polls),
            "most_at_once": self.most_at_once,
        }

    def _made(self, key: str | None, payload: Any, behaviour: Behaviour, now: float) -> Job:
        number = len(self.by_id) + 1
        fate = self._fate(key or str(number))
        wished = payload.get("simulate") if isinstance(payload, Mapping) else None
        wish: Mapping[str, Any] = wished if isinstance(wished, Mapping) else {}
        duration = _number(wish, "duration", behaviour.duration * (1 + behaviour.spread * (2 * fate[1] - 1)))
        starts_at = now + _number(wish, "waiting", behaviour.waiting)
        return Job(
            f"job-{number:06d}",
            key,
            _outcome(wish, behaviour, fate[0]),
            starts_at,
            starts_at + duration,
            behaviour.steps,
            payload if len(repr(payload)) <= MAX_ECHO else None,
        )

    def _fate(self, key: str) -> tuple[float, float]:
        """Returns two numbers from 0 to 1 that a key always has."""
        digest = hashlib.sha256(f"{self._seed}:{key}".encode()).digest()
        return int.from_bytes(digest[:8]) / 2**64, int.from_bytes(digest[8:16]) / 2**64


def _outcome(wish: Mapping[str, Any], behaviour: Behaviour, chance: float) -> str:
    wished = wish.get("outcome")
    if wished is not None:
        if wished != SUCCEED and wished not in FAILURES:
            raise InvalidInput(f"simulate.outcome has to be one of {', '.join((SUCCEED, *FAILURES))}")
        return str(wished)
    for name, share in behaviour.failures.items():
        chance -= share
        if chance < 0:
            return name
    return SUCCEED


def _number(wish: Mapping[str, Any], name: str, otherwise: float) -> float:
    found = wish.get(name, otherwise)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= 864_000:
        raise InvalidInput(f"simulate.{name} has to be a number of seconds")
    return float(found)


_FIELDS = frozenset(one.name for one in fields(Job))


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
