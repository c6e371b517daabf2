"""Text for people: numbers with their nouns, spans of time."""

from __future__ import annotations

from datetime import timedelta


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
