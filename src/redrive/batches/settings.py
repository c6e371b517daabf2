"""The settings of batches, by environment variable; in redrive.toml also as ``[batches]`` with the fields' names."""

from __future__ import annotations

from redrive.settings import FeatureSettings, Settings, setting


class BatchSettings(FeatureSettings):
    # A batch that is open and that nobody has added to for so long is cancelled: its maker is gone.
    open_hours: float = setting("BATCH_OPEN_HOURS", 24.0, gt=0, le=8760)
    # Remote batches: how many are dispatched, started of one batch, polled and settled at once.
    max_claim: int = setting("BATCH_WORKER_MAX_CLAIM", 5, ge=1, le=100)
    max_start: int = setting("BATCH_WORKER_MAX_START_TASKS_PER_BATCH", 10, ge=1, le=1000)
    max_poll: int = setting("BATCH_WORKER_MAX_POLL", 25, ge=1, le=1000)
    max_settle: int = setting("BATCH_WORKER_MAX_SETTLE", 10, ge=1, le=100)
    # An item that has not ended after so many polls, or seconds, is failed as a timeout.
    max_poll_count: int = setting("BATCH_MAX_POLL_COUNT", 20, ge=1, le=100_000)
    max_item_seconds: float = setting("BATCH_MAX_ITEM_SECONDS", 86_400.0, gt=0, le=31_536_000)
    # What the start of one item may take: those that are started or polled in the same call wait for it.
    start_seconds: float = setting("BATCH_START_SECONDS", 30.0, gt=0, le=3600)
    # A start that fails is repeated so often, and for so long; then its item is failed by what the provider said.
    max_start_attempts: int = setting("BATCH_MAX_START_ATTEMPTS", 10, ge=1, le=100_000)
    max_start_seconds: float = setting("BATCH_MAX_START_SECONDS", 21_600.0, gt=0, le=31_536_000)
    # A settlement waits so long for a provider that cannot be asked about items that were failed without its word.
    last_look_seconds: float = setting("BATCH_LAST_LOOK_SECONDS", 900.0, ge=0, le=86_400)
    # So many jobs of each provider may run at once, over all batches and workers; unset: any number.
    max_in_flight: int | None = setting("BATCH_MAX_IN_FLIGHT", None, ge=1, le=1_000_000)
    # Seconds between polls: of the first two, the next two, and all later ones.
    poll_first: float = setting("BATCH_POLL_FIRST_SECONDS", 5.0, ge=0, le=3600)
    poll_next: float = setting("BATCH_POLL_NEXT_SECONDS", 15.0, ge=0, le=3600)
    poll_later: float = setting("BATCH_POLL_LATER_SECONDS", 30.0, ge=0, le=3600)
    # A remote batch of which nothing has moved for so long is told of by doctor.
    stuck_hours: float = setting("BATCH_STUCK_HOURS", 1.0, ge=0, le=8760)
    # What one remote batch may hold.
    max_items: int = setting("BATCH_MAX_ITEMS", 100_000, ge=1, le=1_000_000)
    max_bytes: int = setting("BATCH_MAX_BYTES", 268_435_456, ge=1024)


def retention(settings: Settings) -> dict[str, float]:
    """Returns how many days rows are kept, by the statement that removes older ones: as long as finished tasks. A batch
    goes after its join, which stays while one of its items may still be retried."""
    days = settings.history_days
    return {
        "prune_batches": days,
        "prune_remote_begun": days,
        "prune_remote_items": days,
        "prune_remote": days,
    }
