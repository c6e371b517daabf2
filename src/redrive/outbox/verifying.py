"""Compares the index of a projection with its source."""

from __future__ import annotations

from redrive.outbox.driving import Driver


class Verify:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def step(self) -> float | None:
        return None
