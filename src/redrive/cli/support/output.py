"""Prints what commands say. Everything that comes from tasks is data: never markup, never a terminal sequence."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from redrive.errors import RedriveError
from redrive.ops.inspect import plain
from redrive.stores import shown_url
from redrive.stores.shown import shown_scheme

# Sequences that a terminal obeys: CSI, OSC and other strings up to their end, two-byte escapes; 8-bit forms too.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
# A URL with somebody's login that was given in place of something else, and is quoted as that.
_LOGIN = re.compile(r"[\w+.:-]*//[^\s'\"]*@[^\s'\"]*|[\w+.:-]*//[^\s'\"]*pass[^\s'\"]*=[^\s'\"]*", re.IGNORECASE)
STATE_STYLE = {"failed": "red", "running": "cyan", "completed": "green", "paused": "yellow", "cancelled": "dim"}
WIDTH_WHEN_PIPED = 10_000
LAST_COLUMN_WIDTH = 40


def clean(value: object, *, lines: bool = False) -> str:
    """Returns text for a terminal: one line unless ``lines``, without anything that is not a visible character."""
    text = _SEQUENCE.sub("", str(value))
    kept = "\n\t" if lines else ""
    return "".join(c if c.isprintable() or c in kept else " " if c.isspace() else "\ufffd" for c in text)


def shorten(value: object, most: int) -> str:
    text = " ".join(clean(value).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def json_text(value: Any) -> str:
    """Returns a payload or result for people: readable, and as harmless as the rest."""
    return clean(json.dumps(value, ensure_ascii=False, indent=2), lines=True)


def progress(value: Any) -> str:
    """Returns what a handler said about how far it is."""
    if isinstance(value, dict) and set(value) == {"done", "total", "note"}:
        of = "" if value["total"] is None else f"/{value['total']}"
        note = "" if value["note"] is None else f" {value['note']}"
        return shorten(f"{value['done']}{of}{note}", 60)
    return shorten(f"{value:.0%}" if isinstance(value, float) and 0 <= value <= 1 else value, 60)


def emit(document: Any) -> None:
    """Prints the one JSON document of ``--json``. ASCII only: no character in it can reach a terminal as a command."""
    sys.stdout.write(json.dumps(document, indent=2, default=_jsonable) + "\n")


def emit_list(items: Sequence[Any], following: Any = None, **more: Any) -> None:
    """Prints the JSON document of every list: ``next`` is what the option ``--before`` continues with, null at the
    end."""
    emit({"items": list(items), "next": following, **more})


def _jsonable(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    simple = plain(value)
    return simple if simple is not value else str(value)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Does nothing: the reader has seen enough (``| head``), which is no failure of ours."""
        raise BrokenPipeError


def console(at_least: int = 0) -> Console:
    """Returns a console: plain and as wide as needed when piped; colours and the terminal's width otherwise."""
    out = _Console(file=sys.stdout, markup=False, emoji=False, highlight=False)
    out.width = max(out.width, at_least) if sys.stdout.isatty() else WIDTH_WHEN_PIPED
    return out


def say(*lines: str | Text) -> None:
    out = console()
    for line in lines:
        out.print(Text(clean(line, lines=True)) if isinstance(line, str) else line, soft_wrap=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Prints columns without lines; ``#`` before a name means numbers. Only the last column is folded to fit. Where the
    terminal is too narrow for that, it goes below its row; an id can still be copied in one piece."""
    cells = [[cell if isinstance(cell, Text) else Text(clean(cell)) for cell in row] for row in rows]
    if title:
        say(Text(title, style="bold underline"))
    if sys.stdout.isatty() and len(columns) > 2 and _least_width(columns, cells) > console().width:
        _stacked(columns, cells)
        return
    sys.stdout.write("\n".join(_grid(columns, cells)) + "\n")


def _grid(columns: Sequence[str], cells: Sequence[Sequence[Text]]) -> list[str]:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, name in enumerate(columns):
        justify: JustifyMethod = "right" if name.startswith("#") else "left"
        grid.add_column(name.lstrip("#"), justify=justify, no_wrap=index < len(columns) - 1, overflow="fold")
    for row in cells:
        grid.add_row(*row)
    out = console(_least_width(columns, cells))
    with out.capture() as captured:
        out.print(grid)
    # Padding behind the last column is only noise, in a pipe or in a terminal.
    return [line.rstrip() for line in captured.get().splitlines()]


def _stacked(columns: Sequence[str], cells: Sequence[Sequence[Text]]) -> None:
    """Returns as many columns as fit, and the rest of each row below it."""
    widths = _widths(columns, cells)
    fit = max((n for n in range(1, len(columns)) if sum(widths[:n]) - 2 <= console().width), default=1)
    head, *lines = _grid(columns[:fit], [row[:fit] for row in cells])
    sys.stdout.write(head + "\n")
    for line, row in zip(lines, cells, strict=True):
        sys.stdout.write(line + "\n")
        below = Text("  ").join([cell for cell in row[fit:] if cell.plain.strip()])
        if below.plain:
            say(Text.assemble("    ", below))


def _widths(columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> list[int]:
    return [
        max([len(name.lstrip("#")), *(row[index].cell_len for row in rows)]) + 2 for index, name in enumerate(columns)
    ]


def _least_width(columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> int:
    widths = _widths(columns, rows)
    return sum(widths[:-1]) + min(widths[-1], LAST_COLUMN_WIDTH)


def state(name: str) -> Text:
    return Text(name, style=STATE_STYLE.get(name, ""))


def when(moment: datetime | None) -> str:
    if moment is None:
        return ""
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:  # at an end of the calendar: as it is
        return moment.isoformat(" ", "milliseconds")
    return moment.isoformat(" ", "milliseconds").replace("+00:00", "Z")


def ago(moment: datetime | None, now: datetime | None = None) -> str:
    """Returns a short age, or how long until, as ``3m`` or ``in 2h``."""
    if moment is None:
        return ""
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    short = _short(timedelta(seconds=abs(seconds)))
    return short if seconds > -1 else f"in {short}"


def planned(moment: datetime, now: datetime, paused: object) -> str:
    """Returns when a schedule runs next; that it does not while it is paused."""
    if paused is not None:
        return "paused"
    found = ago(moment, now)
    return found if found.startswith("in ") else f"{found} overdue"


def relative(moment: datetime | None) -> str:
    """Returns ``3m ago`` or ``in 2h``."""
    age = ago(moment)
    return age if not age or age.startswith("in ") else f"{age} ago"


def _short(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size * 2:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


_WITH_SUBCOMMANDS = "causes|groups|operations|approvals|audit|tokens"
_WITHIN = (
    "show|note|mute|resolve|reopen|retry|watch|pause|resume|cancel|approve|reject|export|prune|verify|search|"
    "create|revoke"
)
_ALONE = (
    "up|work|migrate|erase|list|show|failed|stats|doctor|smoke|enqueue|retry|replay|cancel|forget|flush|purge|pause|resume|"
    "limits|drill"
)
_SUGGESTED = re.compile(rf"\bredrive (?:(?:{_WITH_SUBCOMMANDS})(?: (?:{_WITHIN}))?|{_ALONE})\b")
_repeated = ""
_app_known = False


def repeat(arguments: Sequence[str]) -> None:
    """Makes the commands that are suggested from now on be about the same store and application as this one."""
    global _repeated, _app_known
    given = {name: _given(arguments, name) for name in ("--url", "--app")}
    shown = {"--url": shown_url(given["--url"] or ""), "--app": given["--app"]}
    _repeated = "".join(f" {name} {shlex.quote(shown[name] or '')}" for name in given if given[name])
    _app_known = given["--app"] is not None


def knows_app() -> bool:
    return _app_known


def know_app() -> None:
    """Notes that the settings name the application: commands that are suggested need not."""
    global _app_known
    _app_known = True


def _given(arguments: Sequence[str], name: str) -> str | None:
    found = None
    for nth, argument in enumerate(arguments):
        if argument == name and nth + 1 < len(arguments):
            found = arguments[nth + 1]
        elif argument.startswith(f"{name}="):
            found = argument.partition("=")[2]
    return found


def suggest(text: str) -> str:
    """Returns our own words, with commands that can be typed as they are here."""
    plain_text = text.replace(" --app module:app", "") if _app_known else text
    if not _repeated:
        return plain_text
    return _SUGGESTED.sub(lambda found: found.group(0) + _repeated, plain_text)


def report(error: RedriveError, as_json: bool = False) -> None:
    """Prints an error on stderr."""
    message = _LOGIN.sub(lambda found: shown_scheme(found[0]), error.message)
    if as_json:
        body = {"code": error.code, "message": message, "hint": error.hint and suggest(error.hint)}
        sys.stderr.write(json.dumps({"error": body}, separators=(",", ":")) + "\n")
        return
    sys.stderr.write(f"error: {clean(message, lines=True)}\n")
    if error.hint:
        sys.stderr.write(f"→ {clean(suggest(error.hint), lines=True)}\n")
