"""Keyword arguments of the harness's helpers."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict
from uuid import UUID

from redrive.kernel.ports.store import Store


class TaskOptions(TypedDict, total=False):
    """Fields of a new task; see ``NewTask``."""

    id: UUID
    queue: str
    payload: str | None
    priority: int
    max_attempts: int
    delay: float | None
    run_at: datetime | None
    timeout: float | None
    group: str | None
    scope: str | None
    trace_id: str | None
    idempotency_key: str | None
    feature: str | None
    facts: str | None
    join: UUID | None


class ClaimOptions(TypedDict, total=False):
    """Fields of a claim (see ``ClaimRequest``), and which store makes it."""

    store: Store | None
    worker: str
    queues: tuple[str, ...]
    lease: float
    handles: tuple[str, ...] | None
    only: str | None
