"""A clock that stands still until a test moves it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta


class Clock:
    """Starts at the present. Delays, retries, leases and schedules follow it and nothing else."""

    def __init__(self) -> None:
        self._at = time.time()

    def __call__(self) -> float:
        return self._at

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self._at, UTC)

    def advance(self, seconds: float | timedelta) -> None:
        step = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if not step >= 0:
            raise ValueError(f"a clock goes forward: {step!r} seconds cannot be added")
        self._at += step
