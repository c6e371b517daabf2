"""Text for a terminal: without anything that it would obey; a row of numbers as a line of small bars."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Sequences that a terminal obeys: CSI, OSC and other strings up to their end, two-byte escapes; 8-bit forms too.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)


def clean(value: object, *, lines: bool = False) -> str:
    """Returns text for a terminal: one line unless ``lines``, without anything that is not a visible character."""
    text = _SEQUENCE.sub("", str(value))
    kept = "\n\t" if lines else ""
    return "".join(c if c.isprintable() or c in kept else " " if c.isspace() else "\ufffd" for c in text)


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
