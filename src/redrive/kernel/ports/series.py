"""Looking at a store: its own small time series."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from redrive.kernel.series import Ended, SeriesQuery, SeriesRow


class SeriesReads(Protocol):
    """What was counted by the minute, the hour and the day; what workers have sent and nobody has added up yet
    included."""

    async def series(self, which: SeriesQuery) -> list[SeriesRow]:
        """Returns rows in any order; several may be about the same step."""

    async def ended(self, since: datetime) -> list[Ended]:
        """Returns how many tasks ended in each minute, by queue and kind, in any order; several rows may be about the
        same."""
