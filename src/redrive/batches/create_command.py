"""``redrive batch create``: of tasks, or of jobs at a provider."""

from __future__ import annotations

import json as parsing
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import typer

from redrive.batches import cli_output
from redrive.batches.batch import Batch
from redrive.batches.batch_service import BatchRequest, BatchService
from redrive.batches.documents import batch_document, waits_document
from redrive.batches.json_lines import items_of, lines_of, read_items
from redrive.errors import InvalidInput
from redrive.feature import Operator
from redrive.feature.cli import AppName, By, Create, Json, Url, operate, output
from redrive.ops.why import Reason


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

    async def make(own: Operator) -> tuple[Batch, list[Reason]]:
        service = own.of(BatchService)
        if provider is not None:
            made = await service.create(wanted, items=lines_of(_stdin()) if str(file) == "-" else items_of(file))
            return made, await service.unpaid(made)
        with read_items(file, kind) as found:
            service.check(wanted, found())
            return await service.create(wanted, tasks=(item for _, item in found())), []

    made, waits = operate(url, app, make, by=by, create=create)
    if json:
        output.emit({**batch_document(made), "waits_for": waits_document(waits)})
        return
    cli_output.say(made)
    cli_output.say_waits(waits)
    output.say(output.suggest(f"watch it with: redrive batch watch {made.id}"))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _meta(text: str | None) -> Any:
    try:
        return None if text is None else parsing.loads(text)
    except ValueError as error:
        raise InvalidInput(f"--meta is no JSON: {error}", hint="a text is written in quotes: '\"May\"'") from None


async def _stdin() -> AsyncIterator[bytes]:
    stream = typer.get_binary_stream("stdin")
    while chunk := stream.read(65_536):
        yield chunk
