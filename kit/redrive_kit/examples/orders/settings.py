"""The settings of orders, by environment variable; in redrive.toml also as ``[orders]`` with the fields' names."""

from __future__ import annotations

from redrive.feature import FeatureSettings, Settings, setting


class OrderSettings(FeatureSettings):
    keep_days: float = setting("ORDERS_KEEP_DAYS", 30.0, gt=0, le=36500)
    late_hours: float = setting("ORDERS_LATE_HOURS", 24.0, ge=0, le=8760)
    frozen_limit: float = setting("ORDERS_FROZEN_LIMIT", 100.0, ge=0)
    remind_minutes: float = setting("ORDERS_REMIND_MINUTES", 60.0, ge=1, le=10_080)


def retention(settings: Settings) -> dict[str, float]:
    """Returns how many days rows are kept, by the statement that removes older ones."""
    return {"prune_parcels": settings.of(OrderSettings).keep_days}
