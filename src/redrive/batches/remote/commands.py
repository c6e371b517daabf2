"""``redrive batch remote``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import typer

from redrive.batches.batch import BatchState
from redrive.batches.remote.lines import items_of, lines_of
from redrive.batches.remote.model import ITEM_STATES, BatchItem, RemoteBatch
from redrive.batches.remote.service import Progress, RemoteBatchService
from redrive.batches.remote.shown import item_document, items_csv, progress_document, remote_document
from redrive.cli.support.confirm import Yes, confirm
from redrive.cli.support.options import Reason
from redrive.cli.support.progress import bar
from redrive.feature import Operator
from redrive.feature.cli import AppName, By, Json, Url, look_at, operate, output
from redrive.ops.connections import Look, having

cli = typer.Typer(help="Batches of jobs at a provider, paid for as they succeed.")
Id = Annotated[str, typer.Argument(metavar="BATCH", help="The id of a remote batch.")]
State = Annotated[str | None, typer.Option("--state", metavar="NAME", help=", ".join(BatchState) + ".")]
LOOK_EVERY_S = 0.5
PAGE = 1000


def _has(batch: str) -> Look[Any]:
    return having(batch, lambda own: own.of(RemoteBatchService).show(batch))


@cli.command("create")
def create(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="One item a line (JSON), or a JSON array; - is stdin.")],
    provider: Annotated[str, typer.Option("--provider", metavar="NAME", help="Who does the work.")],
    account: Annotated[str | None, typer.Option("--account", metavar="NAME", help="Who pays.")] = None,
    price: Annotated[int, typer.Option("--price", metavar="N", help="Of an item that succeeds.")] = 0,
    key: Annotated[str | None, typer.Option("--key", metavar="TEXT", help="The same key again makes none.")] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="TEXT", help="What people call it.")] = None,
    scope: Annotated[str | None, typer.Option("--scope", metavar="TEXT", help="Whom it is about.")] = None,
    webhook_url: Annotated[
        str | None, typer.Option("--webhook-url", metavar="URL", help="Who is told; else the account's endpoints.")
    ] = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Make a batch of a file: nothing is created unless every line is right."""
    items = lines_of(_stdin()) if str(file) == "-" else items_of(file)

    async def make(own: Operator) -> RemoteBatch:
        return await own.of(RemoteBatchService).create(
            items,
            provider=provider,
            account=account,
            price=price,
            key=key,
            name=name,
            scope=scope,
            webhook_url=webhook_url,
        )

    made = operate(url, app, make, by=by)
    if json:
        output.emit(remote_document(made))
        return
    cost = f", at most {made.price * made.items} of account {made.account}" if made.price else ""
    output.say(f"batch {made.id} has {made.items} items{cost}")
    output.say(output.suggest(f"watch it with: redrive batch remote watch {made.id}"))


async def _stdin() -> AsyncIterator[bytes]:
    stream = typer.get_binary_stream("stdin")
    while chunk := stream.read(65_536):
        yield chunk


@cli.command("list")
def list_remote(
    state: State = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500, help="At most so many.")] = 20,
    before: Annotated[str | None, typer.Option("--before", metavar="ID", help="Go on behind this one.")] = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """The latest remote batches, with their money."""
    looked = look_at(url, app, lambda own: own.of(RemoteBatchService).list(state=state, limit=limit, before=before))
    found = looked.latest(lambda batches: batches, lambda batch: batch.created_at, limit)
    more = str(found[-1][1].id) if len(found) == limit else None
    if json:
        output.emit_list([looked.document(name, remote_document(one)) for name, one in found], more, **looked.missing)
        return
    if not found:
        output.say(f"there are no remote batches{looked.without}")
        return
    columns = ["id", *looked.column, "state", "provider", "#items", "account", "#frozen", "#captured", "age", "name"]
    output.table(columns, [[str(one.id), *looked.cell(name), *_row(one)] for name, one in found])
    if more is not None:
        output.say("", f"more: --before {more}")


def _row(one: RemoteBatch) -> list[object]:
    money = [one.account or "", one.frozen, one.captured]
    name = output.shorten(one.name or "", 40)
    return [one.state.value, one.provider, one.items, *money, output.ago(one.created_at), name]


@cli.command("show")
def show(batch: Id, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """How far a remote batch is, its money, and why items failed."""
    found = operate(url, app, lambda own: own.of(RemoteBatchService).progress(batch), has=_has(batch))
    if json:
        output.emit(progress_document(found))
    else:
        _say(found)


def _say(found: Progress) -> None:
    one = found.batch
    counts = ", ".join(f"{n} {state}" for state, n in found.counts.states.items() if n)
    asked = ", being cancelled" if one.cancelled_at is not None and not one.settled else ""
    output.say(f"batch {one.label} is {one.state}{asked}: {counts}")
    output.say(f"  at {one.provider}, made {output.ago(one.created_at)} ago by {one.created_by}, round {one.round}")
    if one.account is not None:
        money = f"{one.frozen} frozen, {one.captured} captured, {one.released} released"
        output.say(f"  account {one.account}: {money}, at {one.price} an item")
    if one.reason is not None:
        output.say(f"  {one.reason}")
    for name, n in found.by_type.items():
        output.say(f"  {n} failed by {name}")
    if found.counts.states["failed"] and one.settled:
        output.say(output.suggest(f"start them again: redrive batch remote retry-failed {one.id}"))


@cli.command("watch")
def watch(batch: Id, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Follow a remote batch until it is settled. Exit code 1 unless it completed."""

    async def to_the_end(own: Operator) -> Progress:
        with bar(1) as shown:
            line = shown.add_task("batch")
            while True:
                found = await own.of(RemoteBatchService).progress(batch)
                shown.update(line, completed=found.counts.ended, total=found.batch.items)
                if found.batch.settled:
                    return found
                await asyncio.sleep(LOOK_EVERY_S)

    found = operate(url, app, to_the_end, has=_has(batch))
    if json:
        output.emit(progress_document(found))
    else:
        _say(found)
    if found.batch.state is not BatchState.COMPLETED:
        raise typer.Exit(1)


@cli.command("items")
def items(
    batch: Id,
    state: Annotated[str | None, typer.Option("--state", metavar="NAME", help=", ".join(ITEM_STATES) + ".")] = None,
    failure_type: Annotated[str | None, typer.Option("--failure-type", metavar="TYPE", help="Failed by this.")] = None,
    after: Annotated[int, typer.Option("--after", metavar="N", min=0, help="Go on behind this item.")] = 0,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many.")] = 100,
    csv: Annotated[bool, typer.Option("--csv", help="As CSV.")] = False,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """The items in their order, with their results."""

    async def look(own: Operator) -> list[BatchItem]:
        found: list[BatchItem] = []
        while len(found) < limit:
            at, most = found[-1].n if found else after, min(PAGE, limit - len(found))
            part = await own.of(RemoteBatchService).items(
                batch, state=state, failure_type=failure_type, after=at, limit=most
            )
            found += part
            if len(part) < most:
                break
        return found

    found = operate(url, app, look, has=_has(batch))
    if csv:
        typer.echo(items_csv(found), nl=False)
    elif json:
        output.emit_list([item_document(one) for one in found], str(found[-1].n) if len(found) == limit else None)
    elif not found:
        output.say("no items match")
    else:
        output.table(["#n", "state", "job", "#polls", "what"], [_item(one) for one in found])


def _item(one: BatchItem) -> list[object]:
    said = "" if one.result is None else str(one.result)
    what = f"{one.error_code} {one.error_message or ''}" if one.error_code else said
    return [one.n, one.state, output.shorten(one.job or "", 40), one.poll_count, output.shorten(what, 80)]


@cli.command("cancel")
def cancel(
    batch: Id,
    yes: Yes = False,
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Cancel what was not started and release its money; what runs is polled to its end."""
    confirm(f"cancel what batch {batch} has not started?", yes)
    _act(batch, lambda own: own.of(RemoteBatchService).cancel(batch, reason), by, url, app, json)


@cli.command("retry-failed")
def retry_failed(
    batch: Id,
    yes: Yes = False,
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Start the failed items of a settled batch again, as a new charge."""
    confirm(f"start the failed items of batch {batch} again, as a new charge?", yes)
    _act(batch, lambda own: own.of(RemoteBatchService).retry_failed(batch, reason), by, url, app, json)


def _act(batch: str, act: Any, by: str | None, url: str | None, app: str | None, json: bool) -> None:
    found = operate(url, app, act, by=by, has=_has(batch))
    if json:
        output.emit(remote_document(found))
        return
    asked = " when what runs has ended" if not found.settled else ""
    told = f"round {found.round} of {found.in_round} items" if found.state is BatchState.QUEUED else "cancelled" + asked
    output.say(f"batch {found.label}: {told}")
