"""The settings of the outbox, by environment variable; in redrive.toml also as ``[outbox]`` with the fields' names.

``OUTBOX_METRICS_PORT`` is among redrive's own: every worker can serve its metrics there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from redrive.kernel.backoff import Backoff
from redrive.outbox.event import DEFAULT_MAX_ATTEMPTS, check_projection
from redrive.settings import FeatureSettings, Settings, setting

PROJECTIONS_EXAMPLE = '{"notes": {"sink": "fts5:///search.db"}}'
DAY_S = 86_400.0
LIVES_LONGER_DAYS = 7.0


def _projections(value: Any) -> dict[str, dict[str, Any]]:
    """Returns the tables ``[outbox.projections.NAME]``."""
    found = json.loads(value) if isinstance(value, str) else value
    if not isinstance(found, Mapping):
        raise ValueError(f"projections are a table by name, such as {PROJECTIONS_EXAMPLE}")
    return {check_projection(name): _table(name, one) for name, one in found.items()}


def _table(name: str, given: Any) -> dict[str, Any]:
    from redrive.outbox.sinks import scheme_of

    table = {"sink": given} if isinstance(given, str) else given
    if not isinstance(table, Mapping) or not isinstance(table.get("sink"), str):
        raise ValueError(f'the projection {name} has no sink; for example sink = "fts5:///search.db"')
    if unknown := sorted(set(table) - {"sink", "batch", "circuit"}):
        raise ValueError(f"the projection {name} has no option {unknown[0]!r}; there are sink, batch and circuit")
    if not isinstance(table.get("batch", 1), int) or not isinstance(table.get("circuit", False), bool):
        raise ValueError(f"batch of the projection {name} is a number, and circuit is true or false")
    scheme_of(table["sink"])
    return dict(table)


def _window(value: Any) -> tuple[int, int] | None:
    """Returns the minutes of the day, by UTC, between which something may begin: of "01:00-05:00"."""
    if value is None or isinstance(value, tuple):
        return value
    found = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)", str(value).strip())
    if found is None:
        raise ValueError("a window is two times of the day (UTC), such as 01:00-05:00")
    hour, minute, until, more = map(int, found.groups())
    return hour * 60 + minute, until * 60 + more


class OutboxSettings(FeatureSettings):
    """What can be set of the outbox, each with its variable and its limits."""

    lease_seconds: float = setting("OUTBOX_LEASE_SECONDS", 30.0, ge=2, le=86_400)
    reclaim_interval_seconds: float = setting("OUTBOX_RECLAIM_INTERVAL_SECONDS", 5.0, ge=0.01, le=86_400)
    max_processing_seconds: float = setting("OUTBOX_MAX_PROCESSING_SECONDS", 600.0, ge=0.001, le=86_400)
    worker_id: str | None = setting("OUTBOX_WORKER_ID", None)
    base_backoff_seconds: float = setting("OUTBOX_BASE_BACKOFF_SECONDS", 1.0, ge=0, le=86_400)
    max_backoff_seconds: float = setting("OUTBOX_MAX_BACKOFF_SECONDS", 60.0, ge=0, le=86_400)
    max_attempts: int = setting("OUTBOX_MAX_ATTEMPTS", DEFAULT_MAX_ATTEMPTS, ge=1, le=10_000)
    keep_seconds: float = setting("OUTBOX_KEEP_SECONDS", DAY_S, ge=0, le=36_500 * DAY_S)
    # Tombstones outlive the longest retry: of an event that an operator may replay weeks later, too.
    tombstone_days: float = setting("OUTBOX_TOMBSTONE_DAYS", 90.0, gt=0, le=36_500)
    batch: int = setting("OUTBOX_BATCH", 500, ge=1, le=5_000)
    batch_bytes: int = setting("OUTBOX_BATCH_BYTES", 10_000_000, ge=1_000, le=1_000_000_000)
    batch_seconds: float = setting("OUTBOX_BATCH_SECONDS", 5.0, gt=0, le=3_600)
    # Somebody is told when an event is not in its sink for so long.
    oldest_alert_seconds: float = setting("OUTBOX_OLDEST_ALERT_SECONDS", 300.0, gt=0, le=36_500 * DAY_S)
    # Or rather: when something is wrong for so long. None: as each rule says.
    alert_hold_seconds: float | None = setting("OUTBOX_ALERT_HOLD_SECONDS", None, ge=0, le=DAY_S)
    # What is done when an index is lost, and how often one is compared with its source where that is a table.
    rebuild_lost: bool = setting("OUTBOX_REBUILD_LOST", False)
    verify_hours: float = setting("OUTBOX_VERIFY_HOURS", 24.0, ge=0, le=36_500 * 24)
    verify_window: tuple[int, int] | None = setting(
        "OUTBOX_VERIFY_WINDOW", None, parse=_window, examples=["01:00-05:00"]
    )
    projections: dict[str, dict[str, Any]] = setting(
        "OUTBOX_PROJECTIONS", {}, parse=_projections, examples=[PROJECTIONS_EXAMPLE], repr=False
    )
    # The sink of the built-in projection, where no other is declared.
    elastic_url: str | None = setting("ELASTIC_URL", None, repr=False)
    elastic_index: str = setting("ELASTIC_INDEX", "search", min_length=1, max_length=200)

    @property
    def backoff(self) -> Backoff:
        return Backoff(self.base_backoff_seconds, self.max_backoff_seconds)


def retention(settings: Settings) -> dict[str, float]:
    """Returns how many days tombstones and lives are kept, by the statement that removes older ones. A life outlives
    what a sink remembers of the delete that ended it."""
    days = settings.of(OutboxSettings).tombstone_days
    return {"prune_tombstones": days, "prune_lives": days + LIVES_LONGER_DAYS}
