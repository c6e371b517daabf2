"""Reports an outage of the store once, spaces everybody's tries, and reports its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable

from redrive.errors import RedriveError, StoreUnavailable
from redrive.observe.counters import Health

logger = logging.getLogger("redrive.worker")

# Within a second, so that a worker is back within one; spread, so that a fleet does not come all at once.
SHORTEST_RETRY_DELAY_S, LONGEST_RETRY_DELAY_S = 0.2, 1.0
# By so much others come after the one who tries: if he got through, they hear of it before.
AFTER_THE_FIRST_S = 0.15
REMIND_EVERY_S = 30.0
# Contact that breaks again within this time was not a recovery.
STEADY_AFTER_S = 10.0


class Outage:
    """One per worker: its coroutines share the store, so they share its absence. It is over when everyone who met it
    got through again; otherwise a beat that succeeds would announce a recovery between two settles that fail.

    While contact comes and goes (a server with too few connections left, say) that is one disturbance with one
    beginning, a reminder every half minute and one end, however often it flaps.
    """

    def __init__(self, worker_id: str, health: Health) -> None:
        self._worker_id = worker_id
        self._health = health
        self.on_back: Callable[[], None] = lambda: None  # told when others should try, too
        self._since: float | None = None
        self._met: set[str] = set()
        # One of those who met it tries, when this moment has come; the others wait for him.
        self._first: str | None = None
        self._next_try = 0.0
        self._back = asyncio.Event()
        self._unsaid: str | None = None
        self._disturbed_since: float | None = None
        self._logged_at = 0.0
        self._failed_at = 0.0
        self._returned_at = float("-inf")
        self._flaps = 0

    @property
    def seconds(self) -> float:
        return 0.0 if self._since is None else time.monotonic() - self._since

    def begin(self, error: RedriveError, who: str = "work") -> float:
        """Notes a failed contact; returns how many seconds to wait before the next."""
        now = self._failed_at = time.monotonic()
        self._met.add(who)
        self._health.store_error = error.message
        if self._since is None:
            self._since, self._first = now, who
            # A connection that is simply gone has not said why; whoever tries next may hear it.
            self._unsaid = error.message if isinstance(error, StoreUnavailable) and error.vague else None
            if self._unsaid is None:
                self._broke(now, error.message)
        elif self._unsaid is not None:
            self._unsaid = None
            self._broke(now, error.message)
        elif now - self._logged_at >= REMIND_EVERY_S:
            self._still(now, error.message)
        if now >= self._next_try:
            spread = random.random()  # noqa: S311 (spreads a fleet's reconnects; no secret)
            delay = SHORTEST_RETRY_DELAY_S + (LONGEST_RETRY_DELAY_S - SHORTEST_RETRY_DELAY_S) * spread
            self._next_try = now + delay - AFTER_THE_FIRST_S
        return self._next_try - now + (0.0 if who == self._first else AFTER_THE_FIRST_S)

    async def wait(self, seconds: float) -> None:
        """Waits so long, or until the store is known to be back."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._back.wait()

    def try_now(self) -> None:
        """Has everybody try at once: somebody has heard of the store."""
        if self._since is not None:
            self._back.set()
            self._back = asyncio.Event()
            self.on_back()

    def over(self, who: str = "work") -> None:
        """Notes a successful contact; the outage ends when everyone who met it got through again."""
        self._health.last_contact = time.time()
        self._met.discard(who)
        now = time.monotonic()
        if self._since is not None and self._unsaid is not None:
            self._broke(now, self._unsaid)
            self._unsaid = None
        if self._met:
            self.try_now()
        if self._since is not None and not self._met:
            self._since = None
            self._health.reconnects += 1
            self._health.store_error = None
            self._returned_at = now
        if self._since is None and self._disturbed_since is not None:
            self._returned(now, self._disturbed_since)

    def forget(self, who: str) -> None:
        """Drops somebody who has no reason to try again: its last failure says nothing about now."""
        self._met.discard(who)

    def give_up(self, unsettled: int, why: str = "the store is unreachable") -> None:
        """Logs that the worker stops without having settled everything."""
        self._say(
            logging.ERROR,
            "worker.unsettled",
            "stopping while %s: %d outcomes could not be settled; their leases will expire "
            "and the tasks will run again",
            why,
            unsettled,
        )

    def _broke(self, now: float, why: str) -> None:
        if self._disturbed_since is None and now - self._returned_at >= STEADY_AFTER_S:
            self._disturbed_since, self._flaps = now, 0
            self._say(logging.WARNING, "store.unavailable", "%s; keeping finished outcomes and trying again", why)
            return
        self._flaps += 1
        if self._disturbed_since is None:
            self._disturbed_since = now
            self._say(logging.WARNING, "store.unavailable", "contact with the store comes and goes: %s", why)
        elif now - self._logged_at >= REMIND_EVERY_S:
            self._still(now, why)

    def _still(self, now: float, why: str) -> None:
        lasted = now - (self._disturbed_since or now)
        if self._flaps:
            message = "contact with the store still comes and goes after %.0f s (lost %d times): %s"
            self._say(logging.WARNING, "store.unavailable", message, lasted, self._flaps + 1, why)
        else:
            self._say(logging.WARNING, "store.unavailable", "still no store after %.0f s: %s", lasted, why)

    def _returned(self, now: float, disturbed_since: float) -> None:
        if self._flaps and now - self._failed_at < STEADY_AFTER_S:
            return
        self._disturbed_since = None
        self._say(
            logging.INFO, "store.recovered", "the store is back after %.1f s", self._returned_at - disturbed_since
        )

    def _say(self, level: int, event: str, message: str, *args: object) -> None:
        self._logged_at = time.monotonic()
        logger.log(level, message, *args, extra={"event": event, "worker_id": self._worker_id})
