"""``redrive failed``: what is failed now, and why."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from redrive.cli.support import output
from redrive.cli.support.filters import filter_text, filtered
from redrive.cli.support.options import AppName, Json, Url
from redrive.cli.support.session import operate
from redrive.kernel.failed import FailureFilter
from redrive.ops import inspect
from redrive.ops.operator import Operator
from redrive.ops.operator.failures import FailedList
from redrive.ops.text import counted

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
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Tasks that are failed now, the latest first."""
    if stats:
        _stats(which, url, app, json)
        return

    async def look(own: Operator) -> FailedList:
        return await own.failures.list(await own.failures.known(which), limit=limit, offset=offset, before=before)

    listed = operate(url, app, look)
    found, total = listed.tasks, listed.total
    if json:
        following = found[-1].failed_seq if len(found) == limit else None
        output.emit_list([inspect.as_dict(task) for task in found], following, total=total)
        return
    if not found:
        output.say(
            f"nothing is failed ({filter_text(which)})" if total == 0 else f"{total} are failed; none after {offset}"
        )
        return
    rows = [
        (
            task.id,
            task.kind,
            output.ago(task.failed_at),
            f"{task.attempt_count}/{task.max_attempts}",
            task.error_code,
            output.shorten(task.error_message or "", 200),
        )
        for task in found
    ]
    output.table(["id", "kind", "#failed", "#attempts", "code", "message"], rows)
    output.say(
        "",
        f"{len(found)} of {total} ({filter_text(which)})",
        output.suggest("redrive show ID tells the story of one; redrive retry ID runs it again"),
    )


def _stats(which: FailureFilter, url: str | None, app: str | None, json: bool) -> None:
    found = operate(url, app, lambda own: own.failures.statistics(which))
    if json:
        output.emit(asdict(found))
        return
    output.say(f"{counted(found.total)} failed ({filter_text(which)})")
    for name, title in _BY.items():
        counts: dict[str, int] = getattr(found, f"by_{name}")
        if counts:
            output.say("")
            output.table(["#failed", title], [(n, value or "(none)") for value, n in counts.items()])
