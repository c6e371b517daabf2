"""The settings of batches, by environment variable; in redrive.toml also as ``[batches]`` with the fields' names."""

from __future__ import annotations

from redrive.settings import FeatureSettings, Settings, setting


class BatchSettings(FeatureSettings):
    # A batch that is open and that nobody has added to for so long is cancelled: its maker is gone.
    open_hours: float = setting("BATCH_OPEN_HOURS", 24.0, gt=0, le=8760)


def retention(settings: Settings) -> dict[str, float]:
    """Returns how many days rows are kept, by the statement that removes older ones: as long as finished tasks. A batch
    goes after its join, which stays while one of its items may still be retried."""
    return {"prune_batches": settings.history_days}
