"""Where handlers of every peer leave their mark: one shared file of 64-bit numbers.

The same few instructions for everybody: task ``n`` stores its time at place ``n``, and its worker counts one up. No
lock, no system call; well below a microsecond. The parent reads the same memory, so watching costs the workers nothing.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

LEDGER = "BENCH_LEDGER"
SLOT = "BENCH_SLOT"
SLOTS = 64  # counters of worker processes, before the tasks' places
WIDTH = 8


class Ledger:
    def __init__(self, path: Path, places: int | None = None, slot: int = 0) -> None:
        """With ``places`` a new file is made (sparse: untouched places cost nothing)."""
        self.path = path
        self.slot = slot
        if places is not None:
            with path.open("wb") as file:
                file.truncate((SLOTS + places) * WIDTH)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.numbers = memoryview(self._map).cast("q")
        self.places = len(self.numbers) - SLOTS

    def close(self) -> None:
        self.numbers.release()
        self._map.close()

    def hit(self, n: int) -> None:
        """Called first thing by each handler."""
        self.numbers[SLOTS + n] = time.monotonic_ns()
        self.numbers[self.slot] += 1

    def at(self, n: int) -> int:
        """When task ``n`` was handled, in monotonic nanoseconds; 0 while it was not."""
        return int(self.numbers[SLOTS + n])

    def shares(self, workers: int) -> list[int]:
        """How many tasks each worker process handled."""
        return [int(count) for count in self.numbers[:workers]]

    def stamps(self, start: int, stop: int) -> list[int]:
        """The times of the handled tasks among ``start`` to ``stop``, in order of time."""
        return sorted(stamp for stamp in self.numbers[SLOTS + start : SLOTS + stop].tolist() if stamp)


class Progress:
    """Counts handled tasks of a range by walking on from the first gap: queues are nearly first in, first out."""

    def __init__(self, ledger: Ledger, start: int, stop: int) -> None:
        self._ledger = ledger
        self._next = start
        self._stop = stop

    @property
    def left(self) -> int:
        while self._next < self._stop and self._ledger.at(self._next):
            self._next += 1
        return self._stop - self._next


_opened: Ledger | None = None


def hit(n: int) -> None:
    """The mark of a handler in a worker process: opens the ledger named by the environment at the first task, which
    is after the last fork."""
    global _opened
    if _opened is None:
        _opened = Ledger(Path(os.environ[LEDGER]), slot=int(os.environ.get(SLOT, "0")))
    _opened.hit(n)
