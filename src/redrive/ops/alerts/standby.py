"""Evaluates the alerts of a connection from ``redrive up`` while no worker does: when all are gone, that has to be
said."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from redrive.errors import RedriveError
from redrive.kernel.duty import Duty
from redrive.kernel.ports.store import Store
from redrive.ops.alerts.evaluate import EVERY_S, WRITTEN_EVERY
from redrive.ops.alerts.look import book_of

logger = logging.getLogger("redrive.alerts")
# A worker that evaluates writes the book so often at least; two more rounds are for one that is slow.
SILENT_AFTER_S = WRITTEN_EVERY.total_seconds() + 2 * EVERY_S


class Standby:
    """Does the rounds of ``duty`` on a store as long as nobody else does. ``store`` returns it, opened."""

    def __init__(self, name: str, duty: Duty, store: Callable[[], Awaitable[Store]]) -> None:
        self._name = name
        self._duty = duty
        self._store = store
        self._away = False

    async def run(self, every: float = EVERY_S) -> None:
        """Runs until it is cancelled."""
        while True:
            try:
                await self.round()
                self._away = False
            except RedriveError as error:
                if not self._away:  # once until it is there again
                    logger.warning("alerts: %s", error, extra={"event": "alerts.not_evaluated"})
                self._away = True
            await asyncio.sleep(every)

    async def round(self) -> bool:
        """Evaluates the rules once, unless somebody else did a moment ago; returns whether it did."""
        store = await self._store()
        figures = await store.figures()
        book, _ = book_of(figures)
        at = book.at if book.by != self._name else None
        if at is not None and abs((figures.now - at).total_seconds()) < SILENT_AFTER_S:
            return False
        await self._duty.run(store, self._name, lambda: False)
        return True
