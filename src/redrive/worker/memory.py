"""Measures the memory of this process, gives freed memory back to the system, and leaves Python's collector less to
look through.

Claims of changing size leave glibc's heap in pieces: what is in use stays the same, and what the process holds grows
by a megabyte a minute at full rate for a long time. Giving the free pages back takes less than a millisecond.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

TIDY_MEMORY_EVERY_S = 20.0
_STATM = Path("/proc/self/statm")


class Memory:
    """Tidies the process's memory now and then."""

    def __init__(self) -> None:
        self._trim = _find_trim()
        self._next = time.monotonic() + TIDY_MEMORY_EVERY_S

    def tidy(self) -> None:
        """Tidies if it is time; called with each heartbeat. A large heap takes longer, and is tidied less often for
        it."""
        began = time.monotonic()
        if self._trim is not None and began >= self._next:
            self._trim(0)
            now = time.monotonic()
            self._next = now + max(TIDY_MEMORY_EVERY_S, 1000 * (now - began))


def freeze_what_is_loaded() -> None:
    """Keeps what is loaded by now (modules, schemas, handlers) out of Python's collector. It would look through all
    of it each time a few thousand tasks have come and gone, and stand still for 30 ms. For processes that are ours
    alone."""
    gc.collect()
    gc.freeze()


def _find_trim() -> Callable[[int], int] | None:
    """Returns glibc's ``malloc_trim``; None for other C libraries, which need none."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        found = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    return found


def memory_in_use() -> int:
    """Returns how many bytes of memory this process holds; where the system does not tell, the most it ever did."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
