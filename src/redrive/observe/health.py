"""Counts what one worker process does, for /healthz, /readyz and tests."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class Health:
    """Plain numbers, written by the worker and read by anyone in the process."""

    worker_id: str = ""
    started_at: float = 0.0
    last_contact: float = 0.0
    # Since when the hot loop's calls of the store go without an answer; 0 while they are answered.
    unanswered_since: float = 0.0
    store_error: str | None = None
    # Why no handler can be begun here; None while they can.
    cramped: str | None = None
    running: int = 0
    stopping: bool = False
    claimed: int = 0
    completed: int = 0
    requeued: int = 0
    failed: int = 0
    cancelled: int = 0
    lost: int = 0
    refused: int = 0
    late: int = 0
    abandoned: int = 0
    loop_blocked: int = 0
    reconnects: int = 0
    recovered: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
