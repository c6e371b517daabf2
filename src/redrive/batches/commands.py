"""``redrive batch``: making batches of both sorts and looking at them; ``act_commands`` acts on them."""

from __future__ import annotations

import json as parsing
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from redrive.batches import cli_output
from redrive.batches.act_commands import Id, cancel, charge, has, reconcile, retry_failed, to_the_end
from redrive.batches.batch import Failures, ShownBatch, plain_document
from redrive.batches.batch_input import BatchRequest, Given, read_items, task_of
from redrive.batches.batch_service import BatchService
from redrive.batches.items import Item, WantedItems, item_document, results
from redrive.batches.names import ItemState
from redrive.batches.remote.model import ToRetry
from redrive.cli.declared import command_of
from redrive.errors import InvalidInput
from redrive.feature import Operator
from redrive.feature.cli import AppName, By, Create, Json, Url, operate, output

cli = typer.Typer(help="Work that belongs together: create, list, show, watch, items, cancel, retry what failed.")
PAGE, SHOWN = 1000, 50


cli.command("list")(command_of(BatchService, "list"))


@cli.command("show")
def show(batch: Id, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """How far a batch is, its money, what it waits for, and what its items are failed by."""

    async def look(own: Operator) -> tuple[ShownBatch, Failures, ToRetry]:
        service = own.of(BatchService)
        shown = await service.show(batch)
        return shown, await service.failures(batch), await service.to_retry(shown)

    found, failures, retry = operate(url, app, look, has=has(batch))
    if json:
        output.emit({**plain_document(found), "failures": plain_document(failures)})
        return
    cli_output.say(found)
    cli_output.say_waits(found.waits_for)
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
        async for part in results(own.of(BatchService).items, batch, "csv", wanted):
            typer.echo(part, nl=False)

    operate(url, app, write, has=has(batch))


@cli.command("create")
def create(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="One item a line (JSON), or a JSON array; - reads stdin, lines.")
    ],
    provider: Annotated[
        str | None, typer.Option("--provider", metavar="NAME", help="The items are jobs at this provider; else tasks.")
    ] = None,
    account: Annotated[str | None, typer.Option("--account", metavar="NAME", help="Who pays for jobs.")] = None,
    price: Annotated[int | None, typer.Option("--price", metavar="N", help="Of a job that succeeds (0).")] = None,
    webhook_url: Annotated[
        str | None,
        typer.Option("--webhook-url", metavar="URL", help="Who is told of its end; else the account's endpoints."),
    ] = None,
    max_in_flight: Annotated[
        int | None, typer.Option("--max-in-flight", metavar="N", help="So many jobs of it run at once (any number).")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="Each item is a payload of this kind; else a task.")
    ] = None,
    on_complete: Annotated[
        str | None, typer.Option("--on-complete", metavar="KIND", help="A task, enqueued when all have ended.")
    ] = None,
    on_success: Annotated[
        str | None, typer.Option("--on-success", metavar="KIND", help="A task, enqueued when all have completed.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="TEXT", help="What people call it.")] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="TEXT", help="The same key again makes none.")] = None,
    meta: Annotated[str | None, typer.Option("--meta", metavar="JSON", help="A value of your own.")] = None,
    scope: Annotated[str | None, typer.Option("--scope", metavar="TEXT", help="Whom it is about.")] = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    create: Create = False,
    json: Json = False,
) -> None:
    """Make a batch of a file: of tasks, or with --provider of jobs there. Nothing is created unless every item is
    right."""
    if provider is not None and kind is not None:
        raise InvalidInput("--kind: only for batches of tasks", hint="with --provider the items are jobs there")
    wanted = BatchRequest(
        provider=provider,
        account=account,
        price=price,
        webhook_url=webhook_url,
        max_in_flight=max_in_flight,
        on_complete=None if on_complete is None else (on_complete, None),
        on_success=None if on_success is None else (on_success, None),
        name=name,
        key=key,
        meta=_meta(meta),
        scope=scope,
        called=_option,
    )

    async def make(own: Operator) -> ShownBatch:
        service = own.of(BatchService)
        with read_items(file) as found:
            if provider is not None:
                return await service.create(wanted, items=(value for _, value in found()))

            def tasks() -> Iterator[tuple[str, Given]]:
                for what, value in found():
                    where = f"{what} of {file}"
                    yield where, task_of(value, where, kind)

            service.check(wanted, tasks())
            return await service.create(wanted, tasks=(task for _, task in tasks()))

    made = operate(url, app, make, by=by, create=create)
    if json:
        output.emit(plain_document(made))
        return
    cli_output.say(made)
    cli_output.say_waits(made.waits_for)
    output.say(output.suggest(f"watch it with: redrive batch watch {made.id}"))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _meta(text: str | None) -> Any:
    try:
        return None if text is None else parsing.loads(text)
    except ValueError as error:
        raise InvalidInput(f"--meta is no JSON: {error}", hint="a text is written in quotes: '\"May\"'") from None


cli.command("cancel")(cancel)
cli.command("retry-failed")(retry_failed)
cli.command("reconcile")(reconcile)
cli.command("charge")(charge)
