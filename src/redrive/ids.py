"""Task ids: UUID version 7, made by the producer, increasing within a process. Python's own come with 3.14."""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID, SafeUUID

CORRECTION = 10_000 * 4096  # ten seconds, in ticks of a 4096th of a millisecond
VERSION_7 = 0x7000_8000_0000_0000_0000
_lock = threading.Lock()
_ID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_last = 0
# Seeded by the system, untouched by an application's random.seed(), and anew in a forked process. Ids are no secrets:
# asking the system for each would cost more than everything else in here.
_random = random.Random()  # noqa: S311


def _after_fork() -> None:
    """In the child: other random bits than the parent's, and a lock that no thread of the parent holds."""
    global _lock
    _lock = threading.Lock()
    _random.seed()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def new_id() -> UUID:
    """A UUIDv7. Ids from one process sort in the order they were made, also within a millisecond."""
    global _last
    # 48 bits of milliseconds, then 12 bits of sub-millisecond time as RFC 9562 allows for monotonic ids.
    ticks = time.time_ns() * 512 // 125_000
    with _lock:
        # A clock that was put back by more than this was wrong before: ids follow it instead of keeping the wrong time.
        if _last - CORRECTION < ticks <= _last:
            ticks = _last + 1
        _last = ticks
    return _uuid((ticks >> 12) << 80 | (ticks & 0xFFF) << 64 | VERSION_7 | _random.getrandbits(62))


def from_text(text: str) -> UUID:
    """An id as a store wrote it."""
    return _uuid(int(text.replace("-", ""), 16))


def is_id(text: str) -> bool:
    """Whether a text is an id as stores write it."""
    return _ID.fullmatch(text) is not None


def _uuid(bits: int) -> UUID:
    """``UUID(int=…)`` and ``UUID(text)`` check what is known to be right, at two to three times the price."""
    made = object.__new__(UUID)
    _set_int(made, bits)
    _set_safety(made, SafeUUID.unknown)
    return made


# UUIDs refuse to be changed by name; the slots themselves are also faster than object.__setattr__.
_set_int: Callable[[UUID, int], None] = vars(UUID)["int"].__set__
_set_safety: Callable[[UUID, SafeUUID], None] = vars(UUID)["is_safe"].__set__


def time_of(task_id: UUID) -> datetime | None:
    """When the id was made, or None when it is not a version 7 id."""
    if task_id.version != 7:
        return None
    return datetime.fromtimestamp((task_id.int >> 80) / 1000, UTC)
