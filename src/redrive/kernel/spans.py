"""Reads spans of time as people write them: the one place that says what ``30m`` is."""

from __future__ import annotations

import re

EXAMPLES = "30s, 5m, 8h or 7d"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SPAN = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([smhd])")


def seconds_of(text: str) -> float | None:
    """Returns the seconds of ``30s``, ``5m``, ``8h`` or ``7d``; None of what is no span, as a number without its unit:
    who writes 8 may mean hours."""
    found = _SPAN.fullmatch(text.strip())
    return None if found is None else float(found[1]) * _UNITS[found[2]]
