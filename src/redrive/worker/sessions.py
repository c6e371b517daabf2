"""Tells whether something is left of what a process has started."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

LOOK_EVERY_S = 0.05
_PROC = Path("/proc")


async def session_ends(session: int, patience: float) -> bool:
    """Waits until no process of a session is left: a worker that was started in one of its own, and what its handlers
    have started. False when some are left after that many seconds, or where the system does not tell."""
    ends = time.monotonic() + patience
    while (left := _any_left(session)) and time.monotonic() < ends:  # noqa: ASYNC110 (nobody tells of others' children)
        await asyncio.sleep(LOOK_EVERY_S)
    return left is False


def _any_left(session: int) -> bool | None:
    """Returns whether a process of this session runs; None where the system does not tell."""
    if not (_PROC / "self" / "stat").exists():
        return None
    return any(_runs_in(path, session) for path in _PROC.glob("[0-9]*/stat"))


def _runs_in(path: Path, session: int) -> bool:
    try:
        # The name, in parentheses, may have anything in it: what follows the last one does not.
        state, _, _, found, *_ = path.read_text(errors="replace").rpartition(")")[2].split()
    except (OSError, ValueError):  # it has just ended
        return False
    return int(found) == session and state not in "ZX"
