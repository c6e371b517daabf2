"""``redrive failed``: what is failed now, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from redrive.cli.support import output
from redrive.cli.support.connections import Looked, look_at, refuse_place
from redrive.cli.support.filters import filter_text, filtered
from redrive.cli.support.options import AppName, Json, Url
from redrive.errors import InvalidInput
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.wording import counted, sparkline
from redrive.ops.failures import FailureTypesView, RuleView, together
from redrive.ops.history import PERIODS
from redrive.ops.operator import Operator
from redrive.ops.operator.failures import FailedList
from redrive.ops.views import View, task_row

_BY = {
    "kind": "kind",
    "group": "group",
    "code": "code",
    "type": "type",
    "reason": "dead reason",
    "fingerprint": "cause",
}


@filtered
def failed(
    which: FailureFilter,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most so many.")] = 50,
    offset: Annotated[int, typer.Option("--offset", metavar="N", min=0, help="After so many.")] = 0,
    before: Annotated[int | None, typer.Option("--before", metavar="N", min=1, help="Go on from a next.")] = None,
    stats: Annotated[
        bool, typer.Option("--stats", help="Totals by kind, group, code, type, cause; not by scope or trace.")
    ] = False,
    types: Annotated[
        bool, typer.Option("--types", help="By failure type: failed now, failed attempts, trend, your rules.")
    ] = False,
    period: Annotated[
        str | None, typer.Option("--period", metavar="PERIOD", help=f"Of --types: {', '.join(PERIODS)} [24h].")
    ] = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Tasks that are failed now, the latest first."""
    if types:
        _types(which, period or "24h", url, app, json)
        return
    if period is not None:
        raise InvalidInput("--period goes with --types", hint="redrive failed --types --period 7d")
    if stats:
        _stats(which, url, app, json)
        return

    async def look(own: Operator) -> tuple[FailedList, list[View]]:
        meant = await own.failures.known(which)
        found = await own.failures.list(meant, limit=limit, offset=offset, before=before)
        return found, [task_row(one, own.sight) for one in found.tasks]

    refuse_place(url, app, offset=offset, before=before)
    looked = look_at(url, app, look)
    both = looked.latest(lambda one: zip(one[0].tasks, one[1], strict=True), lambda row: row[0].failed_at, limit)
    found = [(name, task) for name, (task, _) in both]
    total = sum(one.total for one, _ in looked.found.values())
    if json:
        following = found[-1][1].failed_seq if len(found) == limit and not looked.everywhere else None
        output.emit_list([seen for _, (_, seen) in both], following, total=total, **looked.missing)
        return
    if not found:
        nothing = f"nothing is failed{looked.without} ({filter_text(which)})"
        output.say(nothing if total == 0 else f"{total} are failed; none after {offset}")
        return
    rows = [
        (
            task.id,
            *looked.cell(name),
            task.kind,
            output.ago(task.failed_at),
            f"{task.attempt_count}/{task.max_attempts}",
            task.error_code,
            output.shorten(task.error_message or "", 200),
        )
        for name, task in found
    ]
    output.table(["id", *looked.column, "kind", "#failed", "#attempts", "code", "message"], rows)
    output.say(
        "",
        f"{len(found)} of {total}{looked.without} ({filter_text(which)})",
        output.suggest("redrive show ID tells the story of one; redrive retry ID runs it again"),
    )


def _types(which: FailureFilter, period: str, url: str | None, app: str | None, json: bool) -> None:
    if which != FailureFilter(queue=which.queue, kind=which.kind):
        raise InvalidInput("--types takes --queue and --kind alone", hint="redrive failed --stats takes more filters")
    _show_types(look_at(url, app, lambda own: own.failures.types(period, which.queue, which.kind)), json)


def _stats(which: FailureFilter, url: str | None, app: str | None, json: bool) -> None:
    looked = look_at(url, app, lambda own: own.failures.statistics(which))
    found = together(looked.found.values())
    if json:
        each = {name: asdict(one) for name, one in looked.found.items()} if looked.everywhere else {}
        output.emit(asdict(found) | ({"connections": each} if each else {}) | looked.missing)
        return
    output.say(f"{counted(found.total)} failed{looked.without} ({filter_text(which)})")
    if looked.everywhere:
        output.say("")
        output.table(["#failed", "connection"], [(one.total, name) for name, one in looked.found.items()])
    for name, title in _BY.items():
        counts: dict[str, int] = getattr(found, f"by_{name}")
        if counts:
            output.say("")
            output.table(["#failed", title], [(n, value or "(none)") for value, n in counts.items()])


def _show_types(looked: Looked[FailureTypesView], json: bool) -> None:
    """Shows the types of each connection by itself."""
    if json:
        documents = {name: asdict(one) for name, one in looked.found.items()}
        output.emit({"connections": documents, **looked.missing} if looked.everywhere else asdict(looked.only))
        return
    for name, one in looked.found.items():
        if looked.everywhere:
            output.heading(name)
        _show_types_of(one)


def _show_types_of(found: FailureTypesView) -> None:
    rows = [(one.type, one.failed, f"{one.attempts:,}", sparkline(one.trend), one.meaning) for one in found.types]
    output.table(["type", "#failed now", f"#attempts in {found.period}", "", "what"], rows)
    if not found.rules:
        return
    output.say("", "rules of the application, the first that fits:")
    table = [
        (" and ".join(_conditions(rule)), rule.reason, rule.failure_type, "yes" if rule.retry else "no")
        for rule in found.rules
    ]
    output.table(["failures with", "reason", "type", "tried again"], table)


def _conditions(rule: RuleView) -> Iterator[str]:
    for name in ("status", "exception", "code", "words"):
        if values := getattr(rule, name):
            yield f"{name} {' or '.join(map(str, values))}"
