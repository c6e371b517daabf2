"""``redrive stats``: exact totals, and what shapes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from redrive.cli.support import output
from redrive.cli.support.connections import Looked, look_at, show_away
from redrive.cli.support.options import AppName, Json, Url
from redrive.cli.support.terminal_text import sparkline
from redrive.errors import InvalidInput
from redrive.kernel.reads import WorkerRow
from redrive.kernel.task import State
from redrive.kernel.wording import counted, span
from redrive.ops.circuits import next_probe
from redrive.ops.handler_notes import describe_stray
from redrive.ops.history import PERIODS, Counts, History, Values
from redrive.ops.inspect import Stats
from redrive.ops.workers import Standing, standing
from redrive.settings import load_settings

_STATES = [state.value for state in State]

Causes = Annotated[
    int, typer.Option("--causes", "--groups", metavar="N", min=1, max=1000, help="How many causes of failure to show.")
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
    looked = look_at(url, app, lambda own: own.health.stats(causes), warns=False)
    if looked.everywhere:
        _of_all(looked, json=json)
        return
    found = looked.only
    env = load_settings().env
    if json:
        output.emit({"env": env, **_document(found)})
        return
    if env != "dev":  # whoever types the next command should know where
        output.say(Text(env, style="bold"), "")
    _print(found)


def _history(looked: Looked[History], json: bool) -> None:
    """Shows how things went on each connection by itself: bars of two stores are no bars of both."""
    if json:
        documents = {name: _as_document(went) for name, went in looked.found.items()}
        output.emit({"connections": documents, **looked.missing} if looked.everywhere else _as_document(looked.only))
        return
    for name, went in looked.found.items():
        if looked.everywhere:
            output.heading(name)
        _show_history(went)


def _of_all(looked: Looked[Stats], *, json: bool) -> None:
    """Shows each connection by itself, and the totals of those that answered."""
    found = looked.found
    totals = {state: sum(one.totals()[state] for one in found.values()) for state in _STATES}
    if json:
        errors = {name: {"error": error} for name, error in looked.missing.get("away", {}).items()}
        output.emit({"totals": totals, "connections": {name: _document(one) for name, one in found.items()} | errors})
        return
    for name, one in found.items():
        output.say(Text(name, style="bold"))
        _print(one)
        output.say("")
    if looked.away:
        show_away(looked.away)
        output.say("")
    shown = ", ".join(f"{totals[state]} {state}" for state in _STATES if totals[state]) or "no tasks"
    output.say(f"all connections: {shown}{looked.without}")


def _print(found: Stats) -> None:
    _totals(found)
    now = found.overview.now
    _holds(found, now)
    _circuits(found, now)
    _limits(found)
    _workers(found, now)
    _causes(found, now)
    _schedules(found, now)


def _document(found: Stats) -> dict[str, Any]:
    overview = found.overview
    return {
        "now": overview.now,
        "totals": found.totals(),
        "forgotten": sum(found.forgotten().values()),
        "queues": found.by("queue"),
        "kinds": found.by("kind"),
        "counts": [asdict(count) for count in found.shown],
        "holds": [asdict(row) for row in overview.holds],
        "circuits": [
            {"name": row.name, "kinds": row.kinds, "since": row.since, "until": row.until, "reason": row.reason}
            for row in overview.circuits
            if row.open
        ],
        "limits": [asdict(row) for row in overview.limits],
        "workers": [
            asdict(row) | {"running": found.held_by(row)} for row in overview.workers if not _gone(row, overview.now)
        ],
        "lost": [
            {
                "worker": one.worker.id,
                "queue": one.queue,
                "tasks": one.tasks,
                "seen_at": one.worker.seen_at,
                "restarted": one.restarted,
                "leases_end": one.last_ends,
            }
            for one in found.lost()
        ],
        "still_running": [asdict(stray) for stray in found.strays],
        "workers_gone": sum(_gone(row, overview.now) for row in overview.workers),
        "failure_groups": [asdict(row) | {"failed": found.failing[row.fingerprint]} for row in found.causes],
        "schedules": [
            asdict(row) | {"paused": overview.pause_of("schedule", row.name) is not None} for row in overview.schedules
        ],
    }


def _totals(found: Stats) -> None:
    rows: dict[tuple[str, str], dict[str, int]] = {}
    for count in found.shown:
        rows.setdefault((count.queue, count.kind), {})[count.state.value] = count.n
    if not any(any(row.values()) for row in rows.values()):
        output.say("no tasks yet")
        return
    totals = found.totals()
    # States that nothing is in would only make the lines longer; these four are asked about.
    shown = [state for state in _STATES if totals[state] or state in ("queued", "running", "failed", "completed")]
    body: list[list[object]] = [
        [queue, kind, *(row.get(state) or "·" for state in shown)] for (queue, kind), row in sorted(rows.items())
    ]
    if len(body) > 1:
        body.append(["all", "", *(totals[state] or "·" for state in shown)])
    output.table(["queue", "kind", *(f"#{state}" for state in shown)], body)
    if forgotten := sum(found.forgotten().values()):
        output.say(f"{forgotten} of the cancelled were forgotten or purged")


def _section(title: str, columns: list[str], rows: list[list[object]]) -> None:
    if rows:
        output.say("")
        output.table(columns, rows, title=title)


def _holds(found: Stats, now: datetime) -> None:
    rows: list[list[object]] = [
        [hold.target, hold.name, hold.actor, output.ago(hold.at, now), hold.reason or ""]
        for hold in found.overview.holds
    ]
    _section("paused", ["what", "name", "by", "since", "reason"], rows)


def _circuits(found: Stats, now: datetime) -> None:
    rows: list[list[object]] = [
        [row.name, ", ".join(row.kinds), span(now - row.since), next_probe(row, now), row.reason or ""]
        for row in found.overview.circuits
        if row.open
    ]
    _section("open circuits", ["circuit", "kinds", "since", "next probe", "reason"], rows)


def _limits(found: Stats) -> None:
    rows: list[list[object]] = [
        [
            row.kind,
            row.concurrency or "-",
            f"{row.rate_ms} ms" if row.rate_ms else "-",
            row.running,
            row.actor or "settings",
        ]
        for row in found.overview.limits
        if row.concurrency or row.rate_ms
    ]
    _section("limits", ["kind", "#at once", "#apart", "#running", "set by"], rows)


def _workers(found: Stats, now: datetime) -> None:
    rows: list[list[object]] = [
        [
            row.id,
            ",".join(row.queues),
            f"{found.held_by(row)}/{row.concurrency}",
            output.ago(row.started_at, now),
            output.ago(row.seen_at, now),
            _standing(row, now),
        ]
        for row in found.overview.workers
        if not _gone(row, now)
    ]
    _section("workers", ["worker", "queues", "#running", "up", "seen", ""], rows)
    for one in found.lost():
        output.say(
            "",
            f"{one.tasks} of the running tasks, of queue {one.queue}, held by worker {one.worker.id}, which"
            f" {one.worker_told(now)}: {one.return_told(now)}",
        )
    for stray in found.strays:
        output.say("", describe_stray(stray, now))
    ended = [row for row in found.overview.workers if _gone(row, now)]
    if ended:
        silent = sum(not row.stopping for row in ended)
        fell = output.suggest(f"; {silent} without a word: redrive doctor") if silent else ""
        output.say("", f"{counted(len(ended), 'worker')} of the last day gone{fell}")


def _gone(row: WorkerRow, now: datetime) -> bool:
    return standing(row, now) is Standing.GONE


def _standing(row: WorkerRow, now: datetime) -> str:
    found = standing(row, now)
    return "" if found is Standing.ALIVE else found.value


def _causes(found: Stats, now: datetime) -> None:
    rows: list[list[object]] = [
        [
            row.fingerprint,
            found.failing[row.fingerprint],
            row.count,
            row.kind,
            row.code,
            row.reason,
            output.ago(row.last_seen, now),
            output.shorten(row.message, 80),
        ]
        for row in found.causes
    ]
    _section(
        "failures by cause", ["fingerprint", "#failed", "#ever", "kind", "code", "reason", "last", "message"], rows
    )


def _schedules(found: Stats, now: datetime) -> None:
    rows: list[list[object]] = [
        [
            *(row.name, row.kind, row.cron, row.timezone),
            output.planned(row.next_at, now, found.overview.pause_of("schedule", row.name)),
            output.ago(row.last_at, now) or "-",
        ]
        for row in found.overview.schedules
    ]
    _section("schedules", ["name", "kind", "cron", "zone", "next", "last"], rows)


_COUNTS = ("started", "completed", "failed", "cancelled", "retried")
_LEVELS = ("depth", "delayed", "running", "paused", "dead")
_ALWAYS = ("completed", "failed", "depth")


def _as_document(found: History) -> dict[str, Any]:
    values = asdict(found)
    del values["step"]
    return {"step_seconds": found.step_seconds, **values}


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
