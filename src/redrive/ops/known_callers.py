"""Callers that a process has verified lately: while the store that knows them is away, they are let in still.

Tokens and sessions live on the default connection. Where there are others, somebody who was signed in a moment ago can
look at those while the default one is down. What it costs: a token that was revoked just before the outage is good
until its time here is over; in the outage itself nobody can revoke one.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from redrive.errors import StoreUnavailable
from redrive.ops.access import Caller

KNOWN_FOR_S = 600.0
ANSWER_S = 3.0  # a store that hangs is away, for whoever is known
MOST_KNOWN = 1000


class KnownCallers:
    """Remembers by a hash of the secret who was let in, with the role of then, since the store last said so."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, Caller]] = OrderedDict()
        self._had_tokens = False

    async def has_tokens(self, ask: Callable[[], Awaitable[bool]]) -> bool:
        """Returns what the store answers; where it does not, and there were tokens once: a closed door stays closed,
        and an open one is not held open."""
        try:
            async with asyncio.timeout(ANSWER_S if self._had_tokens else None):
                self._had_tokens = await ask()
        except (StoreUnavailable, TimeoutError):
            if not self._had_tokens:
                raise
        return self._had_tokens

    async def check(self, secret: str, ask: Callable[[], Awaitable[Caller | None]]) -> Caller | None:
        """Returns what the store answers; where it does not, who had this secret when it last did."""
        key = hashlib.sha256(secret.encode()).hexdigest()
        known = self._of(key)
        try:
            async with asyncio.timeout(None if known is None else ANSWER_S):
                caller = await ask()
        except (StoreUnavailable, TimeoutError):
            if known is None:
                raise
            return known
        self._note(key, caller)
        return caller

    def forget(self, secret: str) -> None:
        self._known.pop(hashlib.sha256(secret.encode()).hexdigest(), None)

    def _of(self, key: str) -> Caller | None:
        at, caller = self._known.get(key, (0.0, None))
        return caller if caller is not None and self._clock() - at < KNOWN_FOR_S else None

    def _note(self, key: str, caller: Caller | None) -> None:
        self._known.pop(key, None)  # revoked or ended: not in an outage either
        if caller is not None:
            self._known[key] = self._clock(), caller
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
