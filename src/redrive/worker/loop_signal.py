"""Wakes a worker's hot loop."""

from __future__ import annotations

import asyncio


class LoopSignal:
    """Tells the hot loop that something changed that it waits for (``wake``), or that there may be something to claim
    (``look``, which ``to_look`` remembers until it has claimed)."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.wake = self._event.set
        self.heard = self._event.clear
        self.to_look = True

    def look(self) -> None:
        self.to_look = True
        self.wake()

    async def wait(self, seconds: float) -> None:
        """Waits to be woken; when nobody did for so many seconds, that is a reason to look."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            self.to_look = True
        self.heard()
