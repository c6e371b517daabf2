"""Which tasks are meant by the id of a remote batch, where tasks are filtered by batch: those of its last round."""

from __future__ import annotations

from uuid import UUID

from redrive.batches.batch import FEATURE, BatchConflict
from redrive.batches.remote.model import remote_of
from redrive.kernel.feature import Members
from redrive.kernel.ports.store import Store


async def members(store: Store, batch: UUID) -> Members | None:
    """Returns the members of a remote batch; None where there is no such batch."""
    rows = await store.sql.feature_rows(FEATURE, "remote_by_id", str(batch))
    if not rows:
        return None
    found = remote_of(rows[0])
    if found.join_id is None:
        raise BatchConflict(
            f"batch {batch} is {found.state}, and has no tasks: its items become tasks when a worker begins it",
            hint=f"redrive batch items {batch} shows its items",
        )
    return Members(found.join_id, f"redrive batch cancel {batch}, or POST /api/batches/{batch}/cancel")
