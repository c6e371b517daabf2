"""``redrive stats``: exact totals, and what shapes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from redrive.cli.declared import plain_document, say_table
from redrive.cli.support import output
from redrive.cli.support.connections import Looked, look_at, show_away
from redrive.cli.support.options import AppName, Json, Url
from redrive.errors import InvalidInput
from redrive.kernel.task import State
from redrive.kernel.wording import counted, sparkline
from redrive.ops.history import PERIODS, Counts, History, Values
from redrive.ops.operator import Operator
from redrive.ops.operator.circuits import CircuitView
from redrive.ops.operator.control import LimitView, PauseView
from redrive.ops.operator.overview import OverviewView
from redrive.ops.operator.schedules import ScheduleView
from redrive.ops.operator.workers import WorkerView
from redrive.ops.views import CauseView
from redrive.settings import load_settings

_STATES = [state.value for state in State]
Answer = tuple[OverviewView, dict[str, Any]]

Causes = Annotated[
    int, typer.Option("--causes", "--groups", metavar="N", min=1, max=500, help="How many causes of failure to show.")
]

Period = Annotated[
    str | None,
    typer.Option(
        "--history", metavar="PERIOD", help=f"Show how things went instead, over {', '.join(PERIODS)}, as bars."
    ),
]
Queue = Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Of this queue.")]
Kind = Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Of this kind.")]


def stats(
    causes: Causes = 10,
    history: Period = None,
    queue: Queue = None,
    kind: Kind = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Totals by queue and kind, pauses, limits, workers, causes of failure, schedules; or how things went."""
    if history is not None:
        _history(look_at(url, app, lambda own: own.health.history(history, queue, kind)), json)
        return
    if queue is not None or kind is not None:
        raise InvalidInput("--queue and --kind narrow the history", hint="redrive stats --history 1h --kind NAME")

    async def look(own: Operator) -> Answer:
        found = await own.overview.show(causes)
        return found, plain_document(found, own)

    looked = look_at(url, app, look, warns=False)
    if looked.everywhere:
        _of_all(looked, json=json)
        return
    found, document = looked.only
    env = load_settings().env
    if json:
        output.emit({"env": env, **document})
        return
    if env != "dev":  # whoever types the next command should know where
        output.say(Text(env, style="bold"), "")
    _print(found)


def _history(looked: Looked[History], json: bool) -> None:
    """Shows how things went on each connection by itself: bars of two stores are no bars of both."""
    if json:
        documents = {name: asdict(went) for name, went in looked.found.items()}
        output.emit({"connections": documents, **looked.missing} if looked.everywhere else asdict(looked.only))
        return
    for name, went in looked.found.items():
        if looked.everywhere:
            output.heading(name)
        _show_history(went)


def _of_all(looked: Looked[Answer], *, json: bool) -> None:
    """Shows each connection by itself, and the totals of those that answered."""
    found = looked.found
    totals = {state: sum(one.totals[state] for one, _ in found.values()) for state in _STATES}
    if json:
        errors = {name: {"error": error} for name, error in looked.missing.get("away", {}).items()}
        output.emit({"totals": totals, "connections": {name: seen for name, (_, seen) in found.items()} | errors})
        return
    for name, (one, _) in found.items():
        output.say(Text(name, style="bold"))
        _print(one)
        output.say("")
    if looked.away:
        show_away(looked.away)
        output.say("")
    shown = ", ".join(f"{totals[state]} {state}" for state in _STATES if totals[state]) or "no tasks"
    output.say(f"all connections: {shown}{looked.without}")


def _print(found: OverviewView) -> None:
    _totals(found)
    _section("paused", PauseView, found.holds, found.now)
    _section("open circuits", CircuitView, found.circuits, found.now)
    _section("limits", LimitView, found.limits, found.now)
    _section("workers", WorkerView, found.workers, found.now)
    for text in [one.text for one in found.lost] + [one.text for one in found.still_running]:
        output.say("", text)
    if found.workers_gone:
        silent = found.fell_silent
        fell = output.suggest(f"; {silent} without a word: redrive doctor") if silent else ""
        output.say("", f"{counted(found.workers_gone, 'worker')} of the last day gone{fell}")
    _section("failures by cause", CauseView, found.failure_groups, found.now)
    _section("schedules", ScheduleView, found.schedules, found.now)


def _totals(found: OverviewView) -> None:
    rows: dict[tuple[str, str], dict[str, int]] = {}
    for count in found.counts:
        rows.setdefault((count.queue, count.kind), {})[count.state.value] = count.n
    if not any(any(row.values()) for row in rows.values()):
        output.say("no tasks yet")
        return
    totals = found.totals
    # States that nothing is in would only make the lines longer; these four are asked about.
    shown = [state for state in _STATES if totals[state] or state in ("queued", "running", "failed", "completed")]
    body: list[list[object]] = [
        [queue, kind, *(row.get(state) or "·" for state in shown)] for (queue, kind), row in sorted(rows.items())
    ]
    if len(body) > 1:
        body.append(["all", "", *(totals[state] or "·" for state in shown)])
    output.table(["queue", "kind", *(f"#{state}" for state in shown)], body)
    if found.forgotten:
        output.say(f"{found.forgotten} of the cancelled were forgotten or purged")


def _section(title: str, view: type, rows: Sequence[object], now: datetime) -> None:
    if rows:
        output.say("")
        say_table(view, [("", row, now) for row in rows], title=title)


_COUNTS = ("started", "completed", "failed", "cancelled", "retried")
_LEVELS = ("depth", "delayed", "running", "paused", "dead")
_ALWAYS = ("completed", "failed", "depth")


def _show_history(found: History) -> None:
    """Prints how much there was in all, or at most, and how it went, oldest first."""
    about = [f"{name} {value}" for name, value in (("queue", found.queue), ("kind", found.kind)) if value is not None]
    steps = f"{len(found.moments)} steps of {_time(found.step_seconds)}, oldest first"
    output.say(
        f"{', '.join(about) or 'everything'}, the last {found.period}: {steps}; a gap is where nobody looked", ""
    )
    if not any(value is not None for value in found.completed):
        output.say("nothing was looked at in this time: workers do that, twice a minute")
        return
    output.table(["figure", "#all", "#highest", "#latest", ""], list(_history_rows(found)))


def _history_rows(found: History) -> Iterator[list[object]]:
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
