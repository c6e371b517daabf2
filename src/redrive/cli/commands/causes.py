"""``redrive causes``: failures by cause, and what people say about them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import typer

from redrive.cli.declared import group_of, say_table
from redrive.cli.support import output
from redrive.cli.support.connections import look_at, on_this, refuse_place
from redrive.cli.support.filters import Forgotten, filter_text, filtered
from redrive.cli.support.options import AppName, Json, Url, list_command
from redrive.cli.support.session import operate
from redrive.cli.support.start_operation import ANSWERS, PACE, Ask, begin_bulk, carried_out, with_operation_options
from redrive.kernel.failure_filter import EVERY_FAILURE, FailureFilter
from redrive.kernel.operation import Action
from redrive.ops import views
from redrive.ops.access import Role
from redrive.ops.causes import order_of, rank_of
from redrive.ops.connections import having
from redrive.ops.operations.lifecycle import How
from redrive.ops.operator import Operator
from redrive.ops.operator.causes import CauseService
from redrive.ops.operator.declared import document
from redrive.ops.views import CauseView

causes_cli = group_of(CauseService, without=("retry",))
Fingerprint = Annotated[str, typer.Argument(metavar="FINGERPRINT", help="As the list gives it; its beginning will do.")]
Status = Annotated[
    str | None,
    typer.Option("--status", metavar="S", help="open, reopened, muted, quiet (none failed), resolved or all."),
]
OWNER = views.Sight(Role.ADMIN)


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
    found = [
        (name, CauseView(**views.cause(one, OWNER)))
        for name, one in looked.latest(lambda page: page.causes, partial(rank_of, order=order_of(sort, status)), limit)
    ]
    left = sum((page.total or 0) for page in pages) - len(found) if looked.everywhere else pages[0].more
    following = None if looked.everywhere else pages[0].next_before
    if json:
        items = [looked.document(name, document(one, OWNER)) for name, one in found]
        sums = {"total": sum((page.total or 0) for page in pages), "tasks": sum(page.tasks for page in pages)}
        output.emit_list(items, following, more=left, **sums, **looked.missing)
        return
    if not found:
        fits = "" if which == EVERY_FAILURE else f" ({filter_text(which)})"
        output.say(("nothing is failed" if status is None else f"no cause is {status}") + looked.without + fits)
        return
    say_table(CauseView, [(name, one, datetime.now(UTC)) for name, one in found], looked)
    if left or following:
        number = f"{left:,}{'+' if any(page.at_least for page in pages) else ''} " if left else ""
        go_on = f"--before {following}" if following else "a higher --limit"
        output.say(f"{number}more: the same command with {go_on}")


list_command(causes_cli, list_causes)


@causes_cli.command("retry")
@with_operation_options
@carried_out(*PACE, *ANSWERS)
def retry(fingerprint: Fingerprint, how: How, ask: Ask, forgotten: Forgotten = False) -> None:
    """Retry everything that failed by this cause and is failed or cancelled now, on the connection that has it."""

    async def find(own: Operator) -> tuple[str, str | None]:
        return (await own.causes.get(fingerprint)).row.fingerprint, own.connection_label

    known = having(fingerprint, lambda own: own.causes.get(fingerprint))
    found, connection = operate(ask.url, ask.app, find, has=known)
    which = FailureFilter(fingerprint=found, forgotten=forgotten or None)
    with on_this(None if ask.url else connection):
        begin_bulk(Action.RETRY, which, ask, how)
