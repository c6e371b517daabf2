"""What is wrong with batches, for doctor."""

from __future__ import annotations

from redrive.batches.open_batches import forgotten
from redrive.batches.remote.doctor import examine_remote
from redrive.batches.settings import BatchSettings
from redrive.feature import Finding, Level, Settings, Store

TOLD_AFTER_HOURS = 1.0


async def examine(store: Store, settings: Settings) -> list[Finding]:
    """Returns what is wrong with batches of both sorts."""
    return [*await examine_open(store, settings), *await examine_remote(store, settings)]


async def examine_open(store: Store, settings: Settings) -> list[Finding]:
    """Returns a finding for each batch that was left open: nothing follows its items until it is sealed."""
    hours = settings.of(BatchSettings).open_hours
    return [
        Finding(
            Level.WARNING,
            "batches_forgotten",
            f"batch {batch.id} is open, and nobody has added to it since {batch.added_at:%Y-%m-%d %H:%M} UTC:"
            f" {batch.total} items, and nothing follows them; it is cancelled after {hours:g} h",
            f"is its maker still at work? else: redrive batch cancel {batch.id}",
            ("page", f"/batches/{batch.id}"),
        )
        for batch in await forgotten(store, min(TOLD_AFTER_HOURS, hours / 2))
    ]
