"""Notices that the machine's clock was set, and keeps what depends on how time passes as it was.

All users of a file are on one machine, and its time since boot goes on evenly whatever is done to its clock. The file
has how far the two are apart. Whoever finds them further apart than before shifts, in one transaction, what counts from
a moment on: leases, and waits for another attempt. After a large step nothing is removed for some hours: by a clock
that is wrong, everything is old.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from redrive.stores.sql import statements
from redrive.stores.sqlite.session import DAY, HOUR, SECOND, Session, micros

SQL = statements("redrive.stores.sqlite", "steady.sql")
DRIFT_US = SECOND  # less is the clock's usual correction
STEP_US = 5 * SECOND
LARGE_STEP_US = HOUR
LONGEST_OFF_US = 7 * DAY  # a machine that was off for longer may as well have a wrong clock
HELD_FOR_US = 6 * HOUR
# Left out while it is not known whether times can be relied on: they give up or remove what is old.
REMOVING_DUTIES = frozenset({"prune", "audit", "failed", "approvals"})
SinceBoot = Callable[[], tuple[str, float] | None]
logger = logging.getLogger("redrive.store")


def since_boot() -> tuple[str, float] | None:
    """Returns which boot of the machine this is, and the seconds since then; None where the system does not say."""
    boot = _boot()
    return None if boot is None else (boot, time.clock_gettime(time.CLOCK_BOOTTIME))


@cache
def _boot() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None


class SteadyClock:
    """Compares the clock with the time since boot, before each transaction: without a statement while nothing has
    happened."""

    def __init__(self, clock: Callable[[], float], boot: SinceBoot) -> None:
        self._clock = clock
        self._boot = boot
        self._seen: tuple[str, int] | None = None

    def look(self) -> tuple[str, int] | None:
        """Returns the boot and how far the clock is from it, if that is news to this process; None otherwise."""
        for _ in range(3):
            before = self._boot()
            now, after = self._clock(), self._boot()
            if before is None or after is None:
                return None
            if after[1] - before[1] < 0.1:  # else the process was stopped between the looks
                boot, apart = before[0], micros(now - before[1])
                return None if self._seen is not None and self._same(boot, apart) else (boot, apart)
        return None

    def _same(self, boot: str, apart: int) -> bool:
        assert self._seen is not None
        return self._seen[0] == boot and abs(apart - self._seen[1]) <= DRIFT_US

    def noted(self, found: tuple[str, int]) -> None:
        self._seen = found


def follow(session: Session, boot: str, apart: int) -> None:
    """Writes down how far the clock is from the time since boot, and shifts what counts from a moment on if it was
    set."""
    known = session.row(SQL["known"])
    held = 0
    if known is not None and known[0] == boot:
        step = apart - known[1]
        held = known[2] + step if known[2] else 0
        if abs(step) > STEP_US:
            _shift(session, step)
        if abs(step) > LARGE_STEP_US:
            held = session.now + HELD_FOR_US
    elif known is not None:
        last = session.row(SQL["last_seen"])
        off = 0 if last is None or last[0] is None else session.now - last[0]
        if known[2] or not 0 <= off <= LONGEST_OFF_US:
            held = session.now + HELD_FOR_US
    session.run(SQL["forget"])
    session.run(SQL["know"], boot, apart, held)


def _shift(session: Session, step: int) -> None:
    leases = session.run(SQL["shift_leases"], step)
    session.run(SQL["shift_waits"], step, session.now)
    session.run(SQL["shift_workers"], session.now, step)
    logger.warning(
        "the machine's clock was set by %.0f s: %d leases keep what was left of them",
        step / SECOND,
        leases,
        extra={"event": "clock.set", "seconds": round(step / SECOND), "leases": leases},
    )


def steady(session: Session) -> bool:
    """Returns whether times can be relied on: False for some hours after the clock was set by much."""
    return session.row(SQL["held"], session.now) is None
