"""Prints what commands say. Everything that comes from tasks is data: never markup, never a terminal sequence."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from redrive.cli.support.terminal_text import clean as clean
from redrive.errors import RedriveError

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.text import Text

# A URL with somebody's login that was given in place of something else, and is quoted as that.
_LOGIN = re.compile(r"[\w+.:-]*//[^\s'\"]*@[^\s'\"]*|[\w+.:-]*//[^\s'\"]*pass[^\s'\"]*=[^\s'\"]*", re.IGNORECASE)


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
    if _into is not None:
        _into[0][_into[1]] = document
        return
    sys.stdout.write(json.dumps(document, indent=2, default=_jsonable) + "\n")


@contextmanager
def gathered() -> Iterator[None]:
    """Makes one document of those that are emitted within, each ``about`` a connection."""
    global _into
    documents: dict[str, Any] = {}
    _into = (documents, "")
    try:
        yield
    finally:
        _into = None
    if _as_json:
        emit({"connections": documents})


@contextmanager
def about(connection: str) -> Iterator[None]:
    """Makes what is said within be about this connection: commands to copy, the document of ``--json``."""
    global _connection, _into
    before, _connection = _connection, connection
    if _into is not None:
        _into = (_into[0], connection)
    try:
        yield
    finally:
        _connection = before


def nothing(why: str) -> None:
    """Says that there is nothing to do on one of several connections."""
    emit({"nothing": why}) if _as_json else say(why)


def fail(error: RedriveError) -> None:
    """Reports an error that is about one of several connections, and goes on."""
    if not _as_json:
        report(error)
        return
    emit({"error": {"code": error.code, "message": error.message, "hint": error.hint}})


def emit_list(items: Sequence[Any], following: Any = None, **more: Any) -> None:
    """Prints the JSON document of every list: ``next`` is what the option ``--before`` continues with, null at the
    end."""
    emit({"items": list(items), "next": following, **more})


def _jsonable(value: Any) -> Any:
    from dataclasses import asdict, is_dataclass

    from redrive.ops.inspect import plain

    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    simple = plain(value)
    return simple if simple is not value else str(value)


def say(*lines: str | Text) -> None:
    for line in lines:
        if isinstance(line, str):
            sys.stdout.write(clean(line, lines=True) + "\n")
        else:
            _drawing().say(line)


def heading(text: str) -> None:
    """Says, between answers about several things, what the next one is about."""
    if not _as_json:
        sys.stdout.flush()
        _drawing().heading(clean(text))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None, last: int = 40
) -> None:
    """Prints columns without lines; ``#`` before a name means numbers. ``last``: the width that the last column needs
    to stand beside the others."""
    _drawing().table(columns, rows, title=title, last=last)


def state(name: str) -> Text:
    styled: Text = _drawing().state(name)
    return styled


def red(text: str) -> Text:
    styled: Text = _drawing().red(clean(text))
    return styled


def bar(total: int | None = None, *, draw: bool = True) -> Progress:
    """Returns a bar for what takes a while; ``draw=False`` is for a command that prints lines instead."""
    made: Progress = _drawing().bar(total, draw=draw)
    return made


def progress_bar(what: str, total: int | None = None) -> AbstractContextManager[Callable[[int], None]]:
    """Draws a bar within the block; gives what to call with the number of things done since the last call."""
    drawn: AbstractContextManager[Callable[[int], None]] = _drawing().progress_bar(what, total)
    return drawn


def _drawing() -> Any:
    """Returns what draws with Rich, which is imported when something is to be drawn: most commands print text."""
    from redrive.cli.support import drawing

    return drawing


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


_repeated = ""
_connection: str | None = None
_app_known = False
_as_json = False
_into: tuple[dict[str, Any], str] | None = None  # where documents go, and of which connection they are
_warned: set[str] = set()


def warn(text: str) -> None:
    """Says once, beside what was asked for, what a person should know; programs that read --json need not."""
    if not _as_json and text not in _warned:
        _warned.add(text)
        sys.stderr.write(f"warning: {clean(text)}\n")


def repeat(arguments: Sequence[str]) -> None:
    """Makes the commands that are suggested from now on be about the same store and application as this one."""
    global _repeated, _connection, _app_known, _as_json
    _as_json = "--json" in arguments
    _warned.clear()
    given = {name: _option_value(arguments, name) for name in ("--url", "--app")}
    named = _option_value(arguments, "--connection")
    _connection = None if named == "all" else named
    shown = dict(given)
    if given["--url"]:
        from redrive.stores import shown_url

        shown["--url"] = shown_url(given["--url"])
    _repeated = "".join(f" {name} {shlex.quote(shown[name] or '')}" for name in given if given[name])
    _app_known = given["--app"] is not None


def knows_app() -> bool:
    return _app_known


def know_app() -> None:
    """Notes that the settings name the application: commands that are suggested need not."""
    global _app_known
    _app_known = True


def _option_value(arguments: Sequence[str], name: str) -> str | None:
    found = None
    for nth, argument in enumerate(arguments):
        if argument == name and nth + 1 < len(arguments):
            found = arguments[nth + 1]
        elif argument.startswith(f"{name}="):
            found = argument.partition("=")[2]
    return found


def suggest(text: str, connection: str | None = None) -> str:
    """Returns our own words, with commands that can be typed as they are here. ``connection``: what they are about,
    where this command looked at all of them."""
    from redrive.ops.shell import for_connection, with_options

    plain_text = text.replace(" --app module:app", "") if _app_known else text
    return for_connection(with_options(plain_text, _repeated), connection or _connection)


def report(error: RedriveError, as_json: bool = False) -> None:
    """Prints an error on stderr."""
    from redrive.stores.shown import shown_scheme

    message = _LOGIN.sub(lambda found: shown_scheme(found[0]), error.message)
    if as_json:
        body = {"code": error.code, "message": message, "hint": error.hint and suggest(error.hint)}
        sys.stderr.write(json.dumps({"error": body}, separators=(",", ":")) + "\n")
        return
    sys.stderr.write(f"error: {clean(message, lines=True)}\n")
    if error.hint:
        sys.stderr.write(f"→ {clean(suggest(error.hint), lines=True)}\n")
