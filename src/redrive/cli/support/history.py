"""How things went, for a terminal: a line for each figure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from redrive.cli.support import output
from redrive.cli.support.sparkline import sparkline
from redrive.ops.history import Counts, History, Values

_COUNTS = ("started", "completed", "failed", "cancelled", "retried")
_LEVELS = ("depth", "delayed", "running", "paused", "dead")
_ALWAYS = ("completed", "failed", "depth")


def document(found: History) -> dict[str, Any]:
    values = asdict(found)
    del values["step"]
    return {"step_seconds": found.step_seconds, **values}


def show(found: History) -> None:
    """Prints how much there was in all, or at most, and how it went, oldest first."""
    about = [f"{name} {value}" for name, value in (("queue", found.queue), ("kind", found.kind)) if value is not None]
    steps = f"{len(found.moments)} steps of {_time(found.step_seconds)}, oldest first"
    output.say(
        f"{', '.join(about) or 'everything'}, the last {found.period}: {steps}; a gap is where nobody looked", ""
    )
    if not any(value is not None for value in found.completed):
        output.say("nothing was looked at in this time: workers do that, twice a minute")
        return
    output.table(["figure", "#all", "#highest", "#latest", ""], list(_rows(found)))


def _rows(found: History) -> Iterator[list[object]]:
    for name in _COUNTS:
        yield from _counts(name, getattr(found, name))
    for name, counts in found.attempts_failed.items():
        yield from _counts(f"attempts failed: {name}", counts)
    for name in _LEVELS:
        levels: Values = getattr(found, name)
        if name in _ALWAYS or any(levels):
            yield [name, "", *_ends(levels, lambda value: f"{value:,.4g}"), sparkline(levels)]
    for label, times in _times(found):
        if any(value is not None for value in times):
            yield [label, "", *_ends(times, _time), sparkline(times)]


def _counts(name: str, values: Counts) -> Iterator[list[object]]:
    if name in _ALWAYS or any(values):
        total = sum(value or 0 for value in values)
        yield [name, f"{total:,}", *_ends(values, lambda value: f"{value:,}"), sparkline(values)]


def _times(found: History) -> Iterator[tuple[str, Values]]:
    yield "oldest waiting", found.oldest_age
    for name, times in (("pick-up", found.wait), ("run time", found.run)):
        for part, values in times.items():
            yield f"{name} {part}", values


def _ends(values: Any, text: Any) -> list[str]:
    """The highest and the latest that is known."""
    known = [value for value in values if value is not None]
    return [text(max(known)), text(known[-1])] if known else ["", ""]


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    for size, unit in ((86_400, "d"), (3_600, "h")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 60:.3g} min"
