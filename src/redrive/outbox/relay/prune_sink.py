"""Forgets versions of documents that were deleted long ago, in sinks that keep them themselves.

Whoever writes to a sink does it, between two requests: the file of a full-text sink may be one that no other worker can
reach. Sinks that forget deletions have tombstones in the store, which its own upkeep prunes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from redrive.outbox.settings import DAY_S
from redrive.outbox.sink import Pruned, Sink

logger = logging.getLogger("redrive.outbox")
EVERY_S = 600.0
AT_ONCE = 1_000  # so that no request waits for long


class SinkPruner:
    """Prunes the sink of one projection every ten minutes while it is written to, in pieces."""

    def __init__(self, name: str, keep_days: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._keep_s = keep_days * DAY_S
        self._clock = clock
        self._next = 0.0

    async def before_request(self, sink: Sink) -> None:
        """Prunes a piece if it is time. What goes wrong is tried again later: events go on all the same."""
        now = self._clock()
        if now < self._next or not isinstance(sink, Pruned):
            return
        self._next = now + EVERY_S
        try:
            if await sink.prune(self._keep_s, AT_ONCE) >= AT_ONCE:
                self._next = now  # there may be more: before the next request
        except Exception as error:
            text = "%s: versions of deleted documents could not be pruned: %r"
            logger.warning(text, self._name, error, extra={"event": "outbox.prune_failed", "projection": self._name})
