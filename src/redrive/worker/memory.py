"""What a worker does about memory: freed pages go back to the system, and the collector has less to look through.

Batches of changing size leave glibc's heap in pieces: what is in use stays the same, and what the process holds grows
by a megabyte a minute at full rate for a long time. Giving the free pages back takes less than a millisecond.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable

EVERY = 20.0


class Memory:
    def __init__(self) -> None:
        self._trim = _find_trim()
        self._next = time.monotonic() + EVERY

    def tidy(self) -> None:
        """Called with each beat. A large heap takes longer, and is tidied less often for it."""
        began = time.monotonic()
        if self._trim is not None and began >= self._next:
            self._trim(0)
            now = time.monotonic()
            self._next = now + max(EVERY, 1000 * (now - began))


def freeze_what_is_loaded() -> None:
    """Modules, schemas and handlers live as long as the process. Python's collector would look through all of them
    each time a few thousand tasks have come and gone, and stand still for 30 ms. For processes that are ours alone."""
    gc.collect()
    gc.freeze()


def _find_trim() -> Callable[[int], int] | None:
    """glibc's ``malloc_trim``; other C libraries have none, and need none."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        found = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    return found
