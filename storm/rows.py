"""Reading the store's tables as an auditor would: directly, without redrive's own code."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from storm.world import World

STATES = ("queued", "delayed", "running", "paused", "failed", "completed", "cancelled")
POSTGRES = """
select id::text, state::text, kind, queue, attempt_count, idempotency_key, extract(epoch from created_at)::float8,
  null, extract(epoch from lease_expires_at - clock_timestamp())::float8 from redrive.task
union all
select id::text, state::text, kind, queue, attempt_count, idempotency_key, extract(epoch from created_at)::float8,
  extract(epoch from finished_at)::float8, null from redrive.history
"""
SQLITE = """
select id, state, kind, queue, attempt_count, idempotency_key, created_at / 1e6, null,
  lease_expires_at / 1e6 - (julianday('now') - 2440587.5) * 86400 from redrive_task
union all
select id, state, kind, queue, attempt_count, idempotency_key, created_at / 1e6, finished_at / 1e6, null
from redrive_history
"""


@dataclass(slots=True, frozen=True)
class Row:
    """A task, live or finished. Times are the store's, in seconds since 1970."""

    id: str
    state: str
    kind: str
    queue: str
    attempts: int
    key: str | None
    created: float
    finished: float | None
    lease_left: float

    def __str__(self) -> str:
        return f"{self.kind} {self.id} {self.state} after {self.attempts} attempts"


def read_rows(world: World) -> list[Row]:
    found = world.sql(POSTGRES if world.postgres else SQLITE)
    return [Row(_text(row[0]), *row[1:8], float(row[8] or 0.0)) for row in found]


def read_attempts(world: World) -> dict[str, list[int]]:
    """The numbers of the failed attempts of each task."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for task_id, attempt in world.sql(f"select task_id, attempt from {world.table('attempt')} order by seq"):
        numbers[_text(task_id)].append(attempt)
    return numbers


def ledger_rows(world: World) -> list[str]:
    return [task_id for (task_id,) in world.sql(f"select task_id from {'public.' if world.postgres else ''}ledger")]


def kept_totals(world: World) -> Counter[tuple[str, str, str]]:
    kept: Counter[tuple[str, str, str]] = Counter()
    for queue, kind, *numbers in world.sql(f"select queue, kind, {', '.join(STATES)} from {world.table('v_counts')}"):
        kept.update({(queue, kind, state): int(n) for state, n in zip(STATES, numbers, strict=True) if n})
    return kept


def _text(value: Any) -> str:
    return str(value) if isinstance(value, UUID | str) else str(UUID(bytes=value))
