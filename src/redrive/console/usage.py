"""Which features nobody uses yet: the menu leaves their pages out."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

from redrive.errors import RedriveError
from redrive.ops.operator import Operator

ASKED_EVERY_S = 5.0
Used = Callable[[Operator], Awaitable[bool]]


class Usage:
    """Asks features whether they are used, each connection by itself: what is used once stays in the menu, and what is
    not is asked for now and then."""

    def __init__(self, asked: Mapping[str, Used]) -> None:
        self._asked = asked
        self._used: set[tuple[str, str]] = set()
        self._next: dict[tuple[str, str], float] = {}

    async def unused(self, operator: Operator) -> frozenset[str]:
        """Returns the names of features that nobody uses here."""
        return frozenset([name for name, used in self._asked.items() if not await self._is_used(name, used, operator)])

    async def _is_used(self, name: str, used: Used, operator: Operator) -> bool:
        key = (name, operator.connection)
        if key not in self._used and time.monotonic() >= self._next.get(key, 0.0):
            self._next[key] = time.monotonic() + ASKED_EVERY_S
            try:
                if await used(operator):
                    self._used.add(key)
            except RedriveError:  # the store is away: the page is needed all the more
                return True
        return key in self._used
