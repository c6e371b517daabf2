"""The store's own time series."""

from __future__ import annotations

from datetime import datetime

from redrive.kernel.series import Ended, SeriesQuery, SeriesRow


class Series:
    """Looks at the series."""

    async def series(self, which: SeriesQuery) -> list[SeriesRow]:
        return []

    async def ended(self, since: datetime) -> list[Ended]:
        return []
