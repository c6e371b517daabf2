"""Task ids: UUID version 7, made by the producer, increasing within a process."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime
from uuid import UUID

_lock = threading.Lock()
_last = 0


def new_id() -> UUID:
    """A UUIDv7. Ids from one process sort in the order they were made, also within a millisecond."""
    global _last
    # 48 bits of milliseconds, then 12 bits of sub-millisecond time as RFC 9562 allows for monotonic ids.
    ticks = time.time_ns() * 4096 // 1_000_000
    with _lock:
        _last = ticks = max(ticks, _last + 1)
    random = int.from_bytes(os.urandom(8), "big") & 0x3FFF_FFFF_FFFF_FFFF
    return UUID(int=(ticks >> 12) << 80 | 0x7000 << 64 | (ticks & 0xFFF) << 64 | 0x8000_0000_0000_0000 | random)


def time_of(task_id: UUID) -> datetime | None:
    """When the id was made, or None when it is not a version 7 id."""
    if task_id.version != 7:
        return None
    return datetime.fromtimestamp((task_id.int >> 80) / 1000, UTC)
