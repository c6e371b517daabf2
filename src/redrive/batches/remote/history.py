"""How the items of a remote batch ended over the time of its round: its pace, and the trend of its failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from redrive.batches.batch import FEATURE, STRETCHES, ItemState
from redrive.batches.remote.model import RemoteBatch
from redrive.kernel.ports.store import Store

LATELY = 5  # stretches: the last sixth of its time says how fast it is now
SHORTEST_S = 30.0  # of a round: before that there is no pace


@dataclass(slots=True, frozen=True)
class History:
    """Items that ended in each of thirty equal stretches of a round; ``failed`` by type."""

    seconds: float  # of all stretches
    completed: list[int]
    failed: Mapping[str, list[int]]

    @property
    def per_second(self) -> float:
        """Returns how many items have ended in a second, lately."""
        ended = [self.completed, *self.failed.values()]
        return sum(sum(one[-LATELY:]) for one in ended) / (self.seconds * LATELY / STRETCHES)

    def seconds_left(self, items: int) -> float | None:
        """Returns how long so many items take at this pace; None where it is too early to say, or nothing ends."""
        pace = self.per_second if self.seconds >= SHORTEST_S else 0.0
        return items / pace if pace else None


async def look(store: Store, batch: RemoteBatch, now: datetime) -> History | None:
    """Returns the history of the last round of a batch; None while it has not begun."""
    if batch.dispatched_at is None:
        return None
    since = batch.dispatched_at.timestamp()
    seconds = max((batch.settled_at or now).timestamp() - since, 1.0)
    rows = await store.sql.feature_rows(FEATURE, "remote_ended", str(batch.id), since, seconds / STRETCHES)
    completed, failed = [0] * STRETCHES, dict[str, list[int]]()
    for row in rows:
        counted = failed.setdefault(row["failure_type"] or "unknown", [0] * STRETCHES) if _is_failed(row) else completed
        counted[min(max(int(row["stretch"]), 0), STRETCHES - 1)] += row["n"]
    return History(seconds, completed, failed)


def _is_failed(row: Mapping[str, Any]) -> bool:
    return bool(row["state"] == ItemState.FAILED)
