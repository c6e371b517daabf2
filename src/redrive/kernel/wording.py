"""Text that every store can hold, and text for people: numbers with their nouns, spans of time, written and
read; a row of numbers as a line of small bars."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta

MAX_MESSAGE = 4_000  # characters of a message that are kept


def clean(text: str) -> str:
    """Returns text that every store can hold: no NUL, no lone surrogates."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


EXAMPLES = "30s, 5m, 8h or 7d"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SPAN = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([smhd])")


def seconds_of(text: str) -> float | None:
    """Returns the seconds of ``30s``, ``5m``, ``8h`` or ``7d``; None of what is no span, as a number without its unit:
    who writes 8 may mean hours."""
    found = _SPAN.fullmatch(text.strip())
    return None if found is None else float(found[1]) * _UNITS[found[2]]


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns which known name is meant most likely, else which there are."""
    import difflib  # rarely wanted

    close = difflib.get_close_matches(name, known := list(known), 1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"


def counted(n: int, noun: str = "task") -> str:
    """Returns ``1 task``, ``2 tasks``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def at_least(n: int, most: int) -> str:
    """Returns a number that was counted up to ``most``: ``999``, ``at least 1,000``."""
    return f"at least {n:,}" if n >= most else f"{n:,}"


def percent(share: float) -> str:
    """Returns ``61%``; what is more than nothing is never ``0%``, nor what is less than all ``100%``."""
    if 0 < share < 0.01:
        return "<1%"
    return ">99%" if 0.99 < share < 1 else f"{share:.0%}"


def span(time: timedelta) -> str:
    """Returns a span of time in its largest fitting unit: ``90 s``, ``5 min``, ``3 h``, ``2 d``."""
    seconds = max(time.total_seconds(), 0)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def prometheus_span(seconds: float) -> str:
    """Returns a span as Prometheus writes it: ``5m``, ``90s``."""
    return f"{seconds / 60:.0f}m" if seconds and seconds % 60 == 0 else f"{seconds:.0f}s"


BARS = "▁▂▃▄▅▆▇█"
GAP = " "


def sparkline(values: Sequence[float | None], width: int = 60) -> str:
    """Returns a bar for each value, or for the highest of several that stand beside each other; a gap for what is not
    known. The highest bar is the highest value."""
    size = -(-len(values) // width) if values else 1
    shown = [_highest(values[i : i + size]) for i in range(0, len(values), size)]
    top = max((value for value in shown if value is not None), default=0) or 1
    return "".join(GAP if value is None else _bar(value / top) for value in shown)


def _highest(part: Sequence[float | None]) -> float | None:
    return max((value for value in part if value is not None), default=None)


def _bar(share: float) -> str:
    return BARS[min(round(share * (len(BARS) - 1)), len(BARS) - 1)]
