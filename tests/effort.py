"""How much a run tries where more is always possible: a little, more in CI, most with REDRIVE_TEST_FULL=1."""

from __future__ import annotations

import os

FULL = bool(os.environ.get("REDRIVE_TEST_FULL"))
THOROUGH = FULL or bool(os.environ.get("REDRIVE_TEST_THOROUGH"))


def tries(quick: int, thorough: int, full: int) -> int:
    """Returns how many examples or histories this run tries."""
    return full if FULL else thorough if THOROUGH else quick
