"""``redrive causes``: failures by cause, and what people say about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer

from redrive.cli.declared import group_of
from redrive.cli.support import output
from redrive.cli.support.connections import look_at, on_this, refuse_place
from redrive.cli.support.filters import Forgotten, filter_text, filtered
from redrive.cli.support.options import AppName, Json, Url, list_command
from redrive.cli.support.session import operate
from redrive.cli.support.start_operation import ANSWERS, PACE, Ask, begin_bulk, carried_out, with_operation_options
from redrive.kernel.failure_filter import EVERY_FAILURE, FailureFilter
from redrive.kernel.operation import Action
from redrive.kernel.wording import counted, percent
from redrive.ops import views
from redrive.ops.access import Role
from redrive.ops.causes import Breakdown, Cause, order_of, rank_of
from redrive.ops.connections import Look, having
from redrive.ops.operations.lifecycle import How
from redrive.ops.operator import Operator
from redrive.ops.operator.causes import CauseService

causes_cli = group_of(CauseService, without=("show", "retry"))
Fingerprint = Annotated[str, typer.Argument(metavar="FINGERPRINT", help="As the list gives it; its beginning will do.")]
Status = Annotated[
    str | None,
    typer.Option("--status", metavar="S", help="open, reopened, muted, quiet (none failed), resolved or all."),
]
OWNER = views.Sight(Role.ADMIN)
SHOWN = 5  # values of each part of a breakdown
_BARS = " ▁▂▃▄▅▆▇█"


@causes_cli.callback(invoke_without_command=True)
@filtered
def list_causes(
    context: typer.Context,
    which: FailureFilter,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500, help="At most so many.")] = 20,
    status: Status = None,
    sort: Annotated[
        str | None,
        typer.Option("--sort", metavar="BY", help="failed (now), count (failures ever), first, last or trend (24 h)."),
    ] = None,
    before: Annotated[str | None, typer.Option("--before", metavar="P", help="Go on from the next of a list.")] = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Causes of what is failed now and matches, those by which most is first."""
    if context.invoked_subcommand is not None:
        return
    refuse_place(url, app, before=before)
    how: dict[str, Any] = {"limit": limit, "status": status, "order": sort, "before": before}
    looked = look_at(url, app, lambda own: own.causes.list(which, **how))
    pages = list(looked.found.values())
    found = looked.latest(lambda page: page.causes, partial(rank_of, order=order_of(sort, status)), limit)
    left = sum((page.total or 0) for page in pages) - len(found) if looked.everywhere else pages[0].more
    following = None if looked.everywhere else pages[0].next_before
    if json:
        items = [looked.document(name, views.cause(cause, OWNER)) for name, cause in found]
        sums = {"total": sum((page.total or 0) for page in pages), "tasks": sum(page.tasks for page in pages)}
        output.emit_list(items, following, more=left, **sums, **looked.missing)
        return
    if not found:
        fits = "" if which == EVERY_FAILURE else f" ({filter_text(which)})"
        output.say(("nothing is failed" if status is None else f"no cause is {status}") + looked.without + fits)
        return
    rows = [
        (
            c.row.fingerprint,
            *looked.cell(name),
            c.status,
            f"{c.failed:,}+" if c.at_least else f"{c.failed:,}",
            percent(c.share),
            f"{c.row.count:,}",
            output.ago(c.row.first_seen),
            output.ago(c.row.last_seen),
            bars(c.trend),
            c.row.code,
            ", ".join(c.kinds),
            output.shorten(c.row.message, 160),
        )
        for name, c in found
    ]
    numbers = [
        "status",
        "#failed now",
        "#of all",
        "#failures ever",
        "#first",
        "#last",
        "24 h",
        "code",
        "kinds",
        "message",
    ]
    output.table(["fingerprint", *looked.column, *numbers], rows)
    if left or following:
        number = f"{left:,}{'+' if any(page.at_least for page in pages) else ''} " if left else ""
        go_on = f"--before {following}" if following else "a higher --limit"
        output.say(f"{number}more: the same command with {go_on}")


list_command(causes_cli, list_causes)


@causes_cli.command("show")
def show(fingerprint: Fingerprint, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """One cause: how often, since when, where, a sample, and what was said about it."""

    async def look(own: Operator) -> tuple[Cause, str | None, Breakdown]:
        cause, connection = await _shown(fingerprint, own)
        return cause, connection, await own.causes.break_down(cause.row.fingerprint)

    _say(*operate(url, app, look, has=_one(fingerprint)), json=json)


@causes_cli.command("retry")
@with_operation_options
@carried_out(*PACE, *ANSWERS)
def retry(fingerprint: Fingerprint, how: How, ask: Ask, forgotten: Forgotten = False) -> None:
    """Retry everything that failed by this cause and is failed or cancelled now, on the connection that has it."""
    found, connection = operate(ask.url, ask.app, partial(_shown, fingerprint), has=_one(fingerprint))
    which = FailureFilter(fingerprint=found.row.fingerprint, forgotten=forgotten or None)
    with on_this(None if ask.url else connection):
        begin_bulk(Action.RETRY, which, ask, how)


def bars(trend: list[int]) -> str:
    """The last day in one line."""
    most = max(trend, default=0)
    return "".join(_BARS[0 if not n else max(1, round(n / most * (len(_BARS) - 1)))] for n in trend) if most else ""


def _one(fingerprint: str) -> Look[Sequence[str]]:
    return having(fingerprint, lambda own: own.causes.get(fingerprint))


async def _shown(fingerprint: str, own: Operator) -> tuple[Cause, str | None]:
    return await own.causes.get(fingerprint), own.connection_label


def _say(cause: Cause, connection: str | None, parts: Breakdown | None = None, *, json: bool) -> None:
    if json:
        document = views.cause(cause, OWNER) | ({} if connection is None else {"connection": connection})
        output.emit(document | ({} if parts is None else {"breakdown": asdict(parts)}))
        return
    row = cause.row
    output.say(
        f"{row.code}  {cause.status}  {row.fingerprint}" + (f"  on {connection}" if connection else ""),
        output.clean(row.message),
        f"{counted(cause.failed)} failed by it now ({percent(cause.share)} of all)",
        f"{counted(row.count, 'failure')} seen, first {output.relative(row.first_seen)},"
        f" last {output.relative(row.last_seen)}",
        f"kinds: {', '.join(f'{kind} ({n})' for kind, n in cause.kinds.items())}",
        f"reason: {row.reason}, type: {row.failure_type}",
        output.suggest(f"sample: redrive show {row.sample_task}"),
    )
    for name, counts in {} if parts is None else parts.parts.items():
        shown = ", ".join(f"{output.clean(value)} ({n:,})" for value, n in [*counts.items()][:SHOWN])
        more = f" and {len(counts) - SHOWN:,} more" if len(counts) > SHOWN else ""
        of = f" (of the last {parts.tasks:,})" if parts is not None and parts.at_least else ""
        output.say(f"by {name}: {shown}{more}{of}")
    if any(cause.trend):
        output.say(f"last 24 hours: |{bars(cause.trend)}| at most {max(cause.trend)} an hour")
    for name in ("note", "owner", *(["resolved_by"] if cause.status == "resolved" else [])):
        if getattr(cause, name):
            output.say(f"{name.replace('_', ' ')}: {getattr(cause, name)}")
    if cause.status == "muted":
        output.say(f"muted until {output.when(cause.muted_until)}")
    if cause.failed:
        output.say(output.suggest(f"once it is mended: redrive causes retry {row.fingerprint} --canary 10 --wait"))
