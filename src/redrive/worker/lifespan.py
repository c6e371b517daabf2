"""Tells when a worker has lived long enough: by time, by tasks, or by the memory that it holds."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

from redrive.settings import Options

LOOK_AT_MEMORY_EVERY_S = 1.0
MEGABYTE = 1 << 20
_STATM = Path("/proc/self/statm")


class Lifespan:
    """The limits of one worker process. ``spread``: it ends by up to that part earlier, by chance, so that processes
    which began together do not end together."""

    def __init__(self, options: Options, *, spread: float = 0.0) -> None:
        share = 1 - random.uniform(0, spread)  # noqa: S311 (nobody has to guess it)
        self._memory = options.max_memory
        self._time = float("inf") if options.max_time is None else options.max_time * share
        self._jobs = float("inf") if options.max_jobs is None else max(options.max_jobs * share, 1)
        self._ends = float("inf")
        self.next_look = float("inf")

    def begin(self) -> None:
        """Counts from now on."""
        self._ends = time.monotonic() + self._time
        self._plan()

    def over(self, claimed: int = 0) -> str | None:
        """Returns why it is enough; None while it is not."""
        self._plan()
        if time.monotonic() >= self._ends:
            return f"it has run for {self._time:.0f} s"
        if claimed >= self._jobs:
            return f"it has run {claimed} tasks"
        if self._memory is not None and (held := memory_held() / MEGABYTE) > self._memory:
            return f"it holds {held:.0f} MB of memory, more than {self._memory:g}"
        return None

    def _plan(self) -> None:
        now = time.monotonic()
        self.next_look = self._ends if self._memory is None else min(self._ends, now + LOOK_AT_MEMORY_EVERY_S)


def memory_held() -> int:
    """Returns how many bytes of memory this process holds; where the system does not tell, the most it ever did."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
