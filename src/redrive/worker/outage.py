"""The store is gone: say so once, wait longer each time, say when it is back."""

from __future__ import annotations

import logging
import random
import time

from redrive.errors import RedriveError
from redrive.observe.health import Health

logger = logging.getLogger("redrive.worker")

FIRST_DELAY = 0.1
LONGEST_DELAY = 5.0
REMIND_EVERY = 30.0


class Outage:
    """One per worker: its coroutines share the store, so they share its absence. It is over when everyone who met it
    got through again; otherwise a beat that succeeds would announce a recovery between two settles that fail."""

    def __init__(self, worker_id: str, health: Health) -> None:
        self._worker_id = worker_id
        self._health = health
        self._since: float | None = None
        self._met: set[str] = set()
        self._delay = FIRST_DELAY
        self._reminded = 0.0

    @property
    def seconds(self) -> float:
        return 0.0 if self._since is None else time.monotonic() - self._since

    def begin(self, error: RedriveError, who: str = "work") -> float:
        """Note a failed contact; answers how long to wait before the next."""
        now = time.monotonic()
        self._met.add(who)
        self._health.store_error = error.message
        if self._since is None:
            self._since = self._reminded = now
            self._delay = FIRST_DELAY
            self._say(
                logging.WARNING, "store.unavailable", "%s; keeping finished outcomes and trying again", error.message
            )
        elif now - self._reminded >= REMIND_EVERY:
            self._reminded = now
            self._say(
                logging.WARNING,
                "store.unavailable",
                "still no store after %.0f s: %s",
                now - self._since,
                error.message,
            )
        delay = self._delay * (0.5 + random.random())  # noqa: S311 (spreads a fleet's reconnects; no secret)
        self._delay = min(self._delay * 2, LONGEST_DELAY)
        return delay

    def over(self, who: str = "work") -> None:
        self._health.last_contact = time.time()
        self._met.discard(who)
        if self._since is not None and not self._met:
            self._say(logging.INFO, "store.recovered", "the store is back after %.1f s", time.monotonic() - self._since)
            self._health.reconnects += 1
            self._health.store_error = None
            self._since = None

    def forget(self, who: str) -> None:
        """Has no reason to try again, so its last failure says nothing about now."""
        self._met.discard(who)

    def give_up(self, unsettled: int) -> None:
        self._say(
            logging.ERROR, "worker.unsettled",
            "stopping while the store is unreachable: %d outcomes could not be settled; their leases will expire "
            "and the tasks will run again", unsettled,
        )  # fmt: skip

    def _say(self, level: int, event: str, message: str, *args: object) -> None:
        logger.log(level, message, *args, extra={"event": event, "worker_id": self._worker_id})
