"""Logs how many events were taken back from workers that are gone or hang."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from redrive.outbox.event import projection_of

logger = logging.getLogger("redrive.outbox")


def log_reclaimed(taken: Sequence[tuple[str, bool]]) -> None:
    """Writes one line for each projection. ``taken``: kinds of tasks, and whether each had passed its time limit."""
    counts = Counter((projection_of(kind), late) for kind, late in taken)
    for name in sorted({name for name, _ in counts if name is not None}):
        lease, late = counts[name, False], counts[name, True]
        extra = {
            "event": "outbox.reclaimed",
            "projection": name,
            "reclaimed": lease + late,
            "lease": lease,
            "max_processing": late,
        }
        text = "%s: took back %d events: %d of leases that ran out, %d that took longer than the maximum"
        logger.warning(text, name, lease + late, lease, late, extra=extra)
