"""Rides out short interruptions of the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from redrive.errors import StoreUnavailable
from redrive.stores.postgres.errors import IdTaken

INTERRUPTION_PATIENCE_S = 10.0
T = TypeVar("T")


async def patiently(
    attempt: Callable[[bool], Awaitable[T]], again: bool, final: tuple[type[StoreUnavailable], ...] = ()
) -> T:
    """Calls ``attempt`` until it succeeds or its time is over, with whether an earlier try may have landed. For what
    carries the producer's own ids: a repeat cannot add a task twice. ``final``: interruptions after which it must not
    be repeated."""
    give_up = time.monotonic() + INTERRUPTION_PATIENCE_S
    delay = 0.05
    while True:
        try:
            return await attempt(again)
        except (StoreUnavailable, IdTaken) as error:
            # Taken by an earlier try that was committed at this moment: the next one sees it.
            mine = again or not isinstance(error, IdTaken)
            if not mine or isinstance(error, final) or time.monotonic() + delay > give_up:
                raise
        again = True
        await asyncio.sleep(delay)
        delay = min(delay * 2, 1.0)
