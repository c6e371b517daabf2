"""Remote batches that do not move, for doctor."""

from __future__ import annotations

from redrive.batches.batch import FEATURE
from redrive.batches.settings import BatchSettings
from redrive.feature import Finding, Level, Settings, Store


async def examine(store: Store, settings: Settings) -> list[Finding]:
    """Returns a finding for each batch of which nothing has moved for ``BATCH_STUCK_HOURS``."""
    hours = settings.of(BatchSettings).stuck_hours
    return [
        Finding(
            Level.WARNING,
            "batches_stuck",
            f"remote batch {row['name'] or row['id']} is {row['state']}, and nothing of it has moved for {hours:g} h"
            + (f"; {row['frozen']} of account {row['account']} are frozen for it" if row["frozen"] else ""),
            f"is a worker alive, and the provider? redrive batch remote show {row['id']}",
            ("page", f"/batches/remote/{row['id']}"),
        )
        for row in await store.feature_rows(FEATURE, "remote_stuck", hours)
    ]
