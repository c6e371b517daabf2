"""Finds the events that a sink refuses for what they are, where it refuses the whole request for one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from redrive.outbox.event import Event
from redrive.outbox.verdict import DETERMINISTIC, Failed, Verdict


class Unfit(Exception):
    """Something in these events was refused. ``reason`` is kept as ``error_reason`` of the one that it is."""

    def __init__(self, message: str, reason: str = DETERMINISTIC) -> None:
        super().__init__(message)
        self.reason = reason


async def find_refused(
    events: Sequence[Event], send: Callable[[Sequence[Event]], Awaitable[Sequence[Verdict]]]
) -> list[Verdict]:
    """Returns the verdicts of ``send``; where it raises Unfit, of both halves, until the culprit is alone."""
    try:
        return list(await send(events))
    except Unfit as error:
        if len(events) == 1:
            return [Failed(error.reason, str(error))]
    middle = len(events) // 2
    return [*await find_refused(events[:middle], send), *await find_refused(events[middle:], send)]
