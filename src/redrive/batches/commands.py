"""``redrive batch``: looking at batches of both sorts; ``create_command`` and ``act_commands`` have the rest."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from redrive.batches import cli_output
from redrive.batches.act_commands import cancel, charge, reconcile, retry_failed
from redrive.batches.batch import Batch, BatchState, ItemState
from redrive.batches.batch_service import BatchService
from redrive.batches.create_command import create
from redrive.batches.documents import batch_document, failures_document, waits_document
from redrive.batches.follow_batch import Id, has, to_the_end
from redrive.batches.items import Item, item_document
from redrive.batches.remote.model import ToRetry
from redrive.batches.results import WantedItems, results
from redrive.batches.task_batch_service import Failures
from redrive.feature import Operator
from redrive.feature.cli import AppName, Json, Url, look_at, operate, output
from redrive.ops.why import Reason

cli = typer.Typer(help="Work that belongs together: create, list, show, watch, items, cancel, retry what failed.")
cli.command("create")(create)
PAGE, SHOWN = 1000, 50


@cli.command("list")
def list_batches(
    state: Annotated[str | None, typer.Option("--state", metavar="NAME", help=", ".join(BatchState) + ".")] = None,
    remote: Annotated[
        bool | None, typer.Option("--remote/--tasks", help="Only jobs at a provider, or only tasks.")
    ] = None,
    provider: Annotated[str | None, typer.Option("--provider", metavar="NAME", help="At this provider.")] = None,
    account: Annotated[str | None, typer.Option("--account", metavar="NAME", help="Paid for by this one.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500, help="At most so many.")] = 20,
    before: Annotated[str | None, typer.Option("--before", metavar="ID", help="Go on behind this one.")] = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """The latest batches, how far they are, and their money."""
    chosen: dict[str, Any] = {"state": state, "remote": remote, "provider": provider, "account": account}
    looked = look_at(url, app, lambda own: own.of(BatchService).list(**chosen, limit=limit, before=before))
    found = looked.latest(lambda page: page.batches, lambda batch: batch.id, limit)
    shown = sum(len(page.batches) for page in looked.found.values())
    on = len(found) < shown or any(page.next_before is not None for page in looked.found.values())
    more = str(found[-1][1].id) if on else None
    if json:
        items = [looked.document(name, batch_document(batch)) for name, batch in found]
        output.emit_list(items, more, **looked.missing)
        return
    if not found:
        none = "no batches fit" if any(value is not None for value in chosen.values()) else "there are no batches"
        output.say(f"{none}{looked.without}")
        return
    columns = ["id", *looked.column, *cli_output.COLUMNS]
    output.table(columns, [[str(one.id), *looked.cell(name), *cli_output.row_of(one)] for name, one in found])
    if more is not None:
        output.say("", f"more: --before {more}")


@cli.command("show")
def show(batch: Id, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """How far a batch is, its money, what it waits for, and what its items are failed by."""

    async def look(own: Operator) -> tuple[Batch, list[Reason], Failures, ToRetry]:
        service = own.of(BatchService)
        shown, waits = await service.show(batch), await service.waits_for(batch)
        return shown, waits, await service.failures(batch), await service.to_retry(shown)

    found, waits, failures, retry = operate(url, app, look, has=has(batch))
    if json:
        about = {"waits_for": waits_document(waits), "failures": failures_document(failures)}
        output.emit({**batch_document(found), **about})
        return
    cli_output.say(found)
    cli_output.say_waits(waits)
    cli_output.say_failures(found, failures, retry)


@cli.command("watch")
def watch(batch: Id, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Follow a batch to its end. Exit code 1 unless it completed."""
    to_the_end(batch, url, app, json)


@cli.command("items")
def items(
    batch: Id,
    state: Annotated[list[str] | None, typer.Option("--state", metavar="A,B", help=", ".join(ItemState) + ".")] = None,
    kind: Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Of this kind.")] = None,
    failure_type: Annotated[
        str | None,
        typer.Option("--failure-type", metavar="TYPE", help="model_error, param_error, timeout, network or unknown."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="How many at most (50).")] = None,
    after: Annotated[str | None, typer.Option("--after", metavar="ITEM", help="Go on behind this one.")] = None,
    csv: Annotated[bool, typer.Option("--csv", help="As CSV; all of them, unless --limit is said.")] = False,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """The items with their results: tasks the latest first, jobs at a provider in their order."""
    states = [name for given in state or [] for name in given.split(",")]
    chosen: dict[str, Any] = {"states": states, "kind": kind, "failure_type": failure_type}
    if csv:
        _write_csv(batch, WantedItems(**chosen, after=after, most=limit or sys.maxsize), url, app)
        return
    most = limit or SHOWN

    async def look(own: Operator) -> tuple[list[Item], str | None]:
        found, following = list[Item](), after
        while True:
            part = min(PAGE, most - len(found))
            page = await own.of(BatchService).items(batch, **chosen, limit=part, after=following)
            found, following = found + page.items, page.next_after
            if following is None or len(found) >= most:
                return found, following

    found, following = operate(url, app, look, has=has(batch))
    if json:
        output.emit_list([item_document(one) for one in found], following)
    elif not found:
        output.say("no items fit" if states or kind or failure_type else "there are no items")
    else:
        cli_output.show_items(found)
        if following is not None:
            output.say("", f"more: --after {following}")


def _write_csv(batch: str, wanted: WantedItems, url: str | None, app: str | None) -> None:
    async def write(own: Operator) -> None:
        async for part in results(own.of(BatchService), batch, "csv", wanted):
            typer.echo(part, nl=False)

    operate(url, app, write, has=has(batch))


cli.command("cancel")(cancel)
cli.command("retry-failed")(retry_failed)
cli.command("reconcile")(reconcile)
cli.command("charge")(charge)
