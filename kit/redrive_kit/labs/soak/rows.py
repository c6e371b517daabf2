"""Reads the store's tables as an auditor would: by SQL, without redrive's own code."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from redrive.outbox.event import queue_of
from redrive_kit.labs.database import Database
from redrive_kit.labs.soak.books import BOOKED, BOOKING_TABLE, PROJECTION, QUEUE

QUEUES = (QUEUE, queue_of(PROJECTION))
_OURS = ", ".join(f"'{name}'" for name in QUEUES)
STATES = ("queued", "delayed", "running", "paused", "failed", "completed", "cancelled")
POSTGRES = f"""
select id, state::text, kind, queue, attempt_count::int,
  extract(epoch from clock_timestamp() - lease_expires_at)::float8
from redrive.task where queue in ({_OURS})
union all
select id, state::text, kind, queue, attempt_count::int, null from redrive.history where queue in ({_OURS})
"""  # noqa: S608 (names of ours)
SQLITE = f"""
select id, state, kind, queue, attempt_count, (julianday('now') - 2440587.5) * 86400 - lease_expires_at / 1e6
from redrive_task where queue in ({_OURS})
union all
select id, state, kind, queue, attempt_count, null from redrive_history where queue in ({_OURS})
"""  # noqa: S608


@dataclass(slots=True, frozen=True)
class Row:
    """A task, live or finished. ``lease_over``: for how many seconds its lease has been over."""

    id: UUID
    state: str
    kind: str
    queue: str
    attempts: int
    lease_over: float

    def __str__(self) -> str:
        return f"{self.kind} {self.id} {self.state} after {self.attempts} attempts"


class Rows:
    """What the tables say of a soak's own queues."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> list[Row]:
        found = await self._database.run(POSTGRES if self._database.postgres else SQLITE)
        return [_row(row) for row in found]

    async def live(self) -> list[Row]:
        """Returns those that have not ended, and the failed ones: few, whatever the soak has done so far."""
        text = POSTGRES if self._database.postgres else SQLITE
        return [_row(row) for row in await self._database.run(text.partition("union all")[0])]

    async def totals(self) -> Counter[tuple[str, str, str]]:
        """Returns the store's own totals, by queue, kind and state."""
        kept: Counter[tuple[str, str, str]] = Counter()
        view = self._database.table("v_counts")
        text = f"select queue, kind, {', '.join(STATES)} from {view} where queue in ({_OURS})"  # noqa: S608
        for queue, kind, *numbers in await self._database.run(text):
            kept.update({(queue, kind, state): int(n) for state, n in zip(STATES, numbers, strict=True) if n})
        return kept

    async def attempts(self) -> dict[UUID, list[int]]:
        """Returns the numbers of the failed attempts of each task."""
        numbers: dict[UUID, list[int]] = defaultdict(list)
        text = f"select task_id, attempt from {self._database.table('attempt')} order by seq"  # noqa: S608
        for task_id, attempt in await self._database.run(text):
            numbers[_uuid(task_id)].append(attempt)
        return numbers

    async def bookings(self) -> tuple[Counter[UUID], set[UUID]]:
        """Returns how often each task was booked, and which of those tasks are completed: of one moment."""
        history = self._database.table("history")
        text = f"""
select 'booked', task_id, null from {self.booking_table}
union all select 'completed', null, id from {history} where kind = '{BOOKED}' and state = 'completed'
"""  # noqa: S608
        found = await self._database.run(text)
        booked = Counter(UUID(task_id) for what, task_id, _ in found if what == "booked")
        return booked, {_uuid(task_id) for what, _, task_id in found if what == "completed"}

    @property
    def booking_table(self) -> str:
        return f"public.{BOOKING_TABLE}" if self._database.postgres else BOOKING_TABLE

    async def prepare(self) -> None:
        await self.clear()
        await self._database.run(f"create table {self.booking_table} (task_id text not null)")

    async def clear(self) -> None:
        await self._database.run(f"drop table if exists {self.booking_table}")


def _row(row: tuple[Any, ...]) -> Row:
    task_id, state, kind, queue, attempts, over = row
    return Row(_uuid(task_id), state, kind, queue, attempts, float(over or 0.0))


def _uuid(value: Any) -> UUID:
    return value if isinstance(value, UUID) else UUID(bytes=value) if isinstance(value, bytes) else UUID(str(value))
