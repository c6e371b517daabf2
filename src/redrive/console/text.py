"""How values are shown: times, numbers, durations, long texts. Filters of the templates."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from redrive.kernel.payload import JsonText, readable
from redrive.kernel.wording import span
from redrive.ops.audit_rows import done_of_matched
from redrive.ops.shell import commands_in

_YEAR = timedelta(days=365)
SHOWN = 40  # characters of a long value; its title has more
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def visible(value: object) -> str:
    """Returns a text with what cannot be seen, or turns its direction, written out: a right-to-left mark is
    ``\\u202e``."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", str(value))


def number(value: float | int | None) -> str:
    """Returns 1234567 as "1,234,567"; nothing as a dash."""
    if value is None:
        return "–"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.1f}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{int(value):,}"


def short_number(value: float) -> str:
    """Returns 1234567 as "1.2M", for axes and badges."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.1f}".rstrip("0").rstrip(".") + unit
    return f"{value:.1f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"


def percent(value: float | None) -> str:
    if value is None:
        return "–"
    return "0 %" if value == 0 else f"{value * 100:.1f} %" if value < 0.1 else f"{value * 100:.0f} %"


def duration(seconds: float | None) -> str:
    """Returns a length of time in the two units that matter."""
    if seconds is None:
        return "–"
    if seconds < 0.001:
        return "0 ms" if seconds <= 0 else "< 1 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    for size, unit, below, small in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            rest = int(seconds % size // below)
            return f"{int(seconds // size)} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{seconds:.0f} s"


def short_duration(seconds: float) -> str:
    """Returns a length of time in one unit, for axes: 90 s is "1.5 min"."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            return f"{seconds / size:.1f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{seconds * 1000:.3g} ms" if seconds else "0"


def milliseconds(value: float | None) -> str:
    return duration(None if value is None else value / 1000)


def relative(moment: datetime, now: datetime) -> str:
    """Returns "5 min ago" or "in 2 h", in the units and the rounding of all our texts."""
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1.5:
        return "now"
    size = timedelta(seconds=abs(seconds))
    told = f"{size / _YEAR:.0f} y" if size >= 2 * _YEAR else span(size)
    return f"{told} ago" if seconds > 0 else f"in {told}"


def age(seconds: float) -> str:
    """Returns how long something has waited, in one unit."""
    return relative(datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(max(seconds, 0), UTC)).removesuffix(" ago")


def exact(moment: datetime) -> str:
    """Returns a time of UTC to the second; for hovering the browser adds the local one."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock(moment: datetime) -> str:
    """Returns the time of day, of UTC."""
    return moment.astimezone(UTC).strftime("%H:%M:%S UTC")


def cut(value: object, size: int = SHOWN) -> str:
    """Returns a text of at most so many characters: its beginning and its end, which tell ids and paths apart."""
    text = visible(value)
    if len(text) <= size:
        return text
    head = size * 2 // 3
    return f"{text[:head]}…{text[len(text) - (size - head - 1) :]}"


def document(value: Any) -> str:
    """Returns a payload, a result, or several documents by name, as indented JSON."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        value = {name: readable(one) if isinstance(one, JsonText) else one for name, one in value.items()}
    elif isinstance(value, JsonText):
        value = readable(value)
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def visible_text(value: object) -> str:
    """The same for text of several lines, which stay lines."""
    return "\n".join(visible(line) for line in str(value).split("\n"))


def summary_text(summary: Any) -> str:
    """Returns what of a failure everybody may see, as a sentence."""
    found = readable(summary) if isinstance(summary, JsonText) else summary
    if not isinstance(found, dict):
        return str(found)
    exception, message = found.get("exception"), found.get("message")
    return ": ".join(str(part) for part in (exception, message) if part)


FILTERS = {
    "commands": commands_in,
    "done_of_matched": done_of_matched,
    "visible": visible,
    "visible_text": visible_text,
    "number": number,
    "short_number": short_number,
    "percent": percent,
    "duration": duration,
    "milliseconds": milliseconds,
    "cut": cut,
    "exact": exact,
    "clock": clock,
    "age": age,
    "document": document,
}
