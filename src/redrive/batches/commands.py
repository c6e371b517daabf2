"""``redrive batch``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from redrive.batches.batch import Batch, BatchState
from redrive.batches.lines import read_items
from redrive.batches.remote.commands import cli as remote
from redrive.batches.service import BatchService, Failures
from redrive.batches.shown import batch_document, failures_document
from redrive.cli.support.confirm import DryRun, Yes, confirm
from redrive.cli.support.follow import follow, say_begun
from redrive.cli.support.options import Reason
from redrive.cli.support.progress import bar
from redrive.cli.support.start_operation import Rate, Wait, say_approval
from redrive.feature import Operator
from redrive.feature.cli import AppName, By, Json, Url, look_at, operate, output
from redrive.kernel.task import State
from redrive.ops import inspect
from redrive.ops.connections import Look, having
from redrive.ops.operator.operations import BegunOperation, OperationPreview
from redrive.ops.text import counted

cli = typer.Typer(help="Tasks that belong together: create, list, show, watch, items, cancel, retry what failed.")
cli.add_typer(remote, name="remote")
Id = Annotated[str, typer.Argument(metavar="BATCH", help="The id of a batch.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500, help="At most so many.")]
Before = Annotated[str | None, typer.Option("--before", metavar="ID", help="Go on behind this one.")]
LOOK_EVERY_S = 0.5


def _has(batch: str) -> Look[Any]:
    return having(batch, lambda own: own.of(BatchService).show(batch))


@cli.command("list")
def list_batches(
    state: Annotated[str | None, typer.Option("--state", metavar="NAME", help=", ".join(BatchState) + ".")] = None,
    limit: Limit = 20,
    before: Before = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """The latest batches, and how far they are."""
    looked = look_at(url, app, lambda own: own.of(BatchService).list(state=state, limit=limit, before=before))
    found = looked.latest(lambda batches: batches, lambda batch: batch.created_at, limit)
    more = str(found[-1][1].id) if len(found) == limit else None
    if json:
        items = [looked.document(name, batch_document(batch)) for name, batch in found]
        output.emit_list(items, more, **looked.missing)
        return
    if not found:
        output.say(f"there are no batches{looked.without}")
        return
    columns = ["id", *looked.column, "state", "#done", "#failed", "#of", "age", "name"]
    output.table(columns, [[str(one.id), *looked.cell(name), *_row(one)] for name, one in found])
    if more is not None:
        output.say("", f"more: --before {more}")


def _row(batch: Batch) -> list[object]:
    state = f"{batch.state} (open)" if batch.open and not batch.cancelled_at else batch.state.value
    done = batch.total - batch.pending
    return [state, done, batch.failed, batch.total, output.ago(batch.created_at), output.shorten(batch.name or "", 40)]


@cli.command("show")
def show(batch: Id, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """How far a batch is, and what its items are failed by."""

    async def look(own: Operator) -> tuple[Batch, Failures]:
        service = own.of(BatchService)
        return await service.show(batch), await service.failures(batch)

    found, failures = operate(url, app, look, has=_has(batch))
    if json:
        output.emit({**batch_document(found), "failures": failures_document(failures)})
        return
    _say(found)
    for name, n in failures.by_type.items():
        output.say(f"  {n} failed by {name}")
    for cause in failures.causes[:5]:
        output.say(f"  {cause.failed} by cause {cause.row.fingerprint}: {cause.row.code} {_words(cause.row.message)}")
    if found.failed:
        output.say(output.suggest(f"retry them: redrive batch retry-failed {found.id}"))


def _words(message: str) -> str:
    return output.shorten(" ".join(message.split()), 80)


def _say(batch: Batch) -> None:
    name = "" if batch.name is None else f" {batch.name}"
    kept = " and open" if batch.open and batch.cancelled_at is None else ""
    counts = ", ".join(f"{n} {what}" for n, what in _counts(batch) if n) or "no items"
    output.say(f"batch {batch.id}{name} is {batch.state}{kept}: {counts}")
    output.say(f"  made {output.ago(batch.created_at)} ago by {batch.created_by}" + _times(batch))
    if batch.asked:
        output.say(f"  {batch.cancelled_by} wants to cancel it: a second operator has to agree")
    if batch.cancelled_at is not None:
        output.say(f"  cancelled by {batch.cancelled_by}" + (f": {batch.cancel_reason}" if batch.cancel_reason else ""))
    if batch.fault is not None:
        output.say(f"  what should follow did not: {batch.fault}")


def _counts(batch: Batch) -> list[tuple[int, str]]:
    return [(getattr(batch, name), name) for name in ("pending", "completed", "failed", "cancelled")]


def _times(batch: Batch) -> str:
    ended = "" if batch.ended_at is None else f", ended {output.ago(batch.ended_at)} ago"
    return ended + ("" if batch.key is None else f", key {batch.key}")


@cli.command("watch")
def watch(batch: Id, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Follow a batch to its end. Exit code 1 unless all items completed."""

    async def to_the_end(own: Operator) -> Batch:
        with bar(1) as shown:
            line = shown.add_task("batch")
            while True:
                found = await own.of(BatchService).show(batch)
                shown.update(line, completed=found.total - found.pending, total=found.total)
                if not found.open and not found.pending:
                    return found
                await asyncio.sleep(LOOK_EVERY_S)

    found = operate(url, app, to_the_end, has=_has(batch))
    if json:
        output.emit(batch_document(found))
    else:
        _say(found)
    if found.state is not BatchState.COMPLETED:
        raise typer.Exit(1)


@cli.command("items")
def items(
    batch: Id,
    state: Annotated[list[str] | None, typer.Option("--state", metavar="A,B", help=", ".join(State) + ".")] = None,
    kind: Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Of this kind.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="How many at most.")] = 50,
    before: Before = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """The items of a batch, the latest first: tasks, live and finished."""
    states = inspect.parse_states([name for given in state or [] for name in given.split(",")])
    after = None if before is None else inspect.parse_id(before)

    async def look(own: Operator) -> tuple[inspect.Page, str | None]:
        page = await own.of(BatchService).items(batch, states=states, kind=kind, limit=limit, before=after)
        return page, own.told_connection

    page, connection = operate(url, app, look, has=_has(batch))
    if json:
        output.emit_list([inspect.as_dict(task, connection) for task in page.tasks], page.next_before)
        return
    if not page.tasks:
        output.say("no items match")
        return
    output.table(
        ["id", "state", "kind", "attempts", "what"],
        [
            [
                task.id,
                output.state(task.state),
                task.kind,
                f"{task.attempt_count}/{task.max_attempts}",
                output.shorten(f"{task.error_code} {task.error_message or ''}" if task.error_code else "", 80),
            ]
            for task in page.tasks
        ],
    )
    if page.next_before is not None:
        output.say("", f"more: --before {page.next_before}")


@cli.command("cancel")
def cancel(
    batch: Id,
    dry_run: DryRun = False,
    wait: Wait = False,
    yes: Yes = False,
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Cancel what has not ended: what waits now, what runs is asked to stop. Nothing more can be added."""
    seen = operate(url, app, lambda own: own.of(BatchService).preview_cancel(batch), by=by, has=_has(batch))
    if dry_run:
        _would("cancel", seen, json)
        return
    confirm(f"cancel {counted(seen.number)} of batch {batch} that have not ended?", yes)
    begun = operate(url, app, lambda own: own.of(BatchService).cancel(batch, reason), by=by, has=_has(batch))
    _done(begun, "cancel", wait, url, app, json)


@cli.command("retry-failed")
def retry_failed(
    batch: Id,
    rate: Rate = None,
    dry_run: DryRun = False,
    wait: Wait = False,
    yes: Yes = False,
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Retry the items that are failed now, as one operation."""
    seen = operate(url, app, lambda own: own.of(BatchService).preview_retry(batch), by=by, has=_has(batch))
    if dry_run:
        _would("retry", seen, json)
        return
    confirm(f"retry {counted(seen.number)} of batch {batch} that failed?", yes)

    async def act(own: Operator) -> BegunOperation:
        return await own.of(BatchService).retry_failed(batch, reason, rate=rate)

    _done(operate(url, app, act, by=by, has=_has(batch)), "retry", wait, url, app, json)


def _would(name: str, seen: OperationPreview, json: bool) -> None:
    if json:
        output.emit({"action": name, "matched": seen.number, "dry_run": True, "needs_approval": seen.approval})
        return
    output.say(f"would {name} {counted(seen.number)}; nothing was done")
    say_approval(seen.approval)


def _done(begun: BegunOperation, name: str, wait: bool, url: str | None, app: str | None, json: bool) -> None:
    if not (wait and json):  # stdout is one document
        say_begun(begun.operation, begun.approval, json, name)
    if wait:
        follow(begun.operation.id, url, app, json)


@cli.command("create")
def create(
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="One item a line, as JSON; - reads stdin.")],
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="Each line is a payload of this kind; else a task.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="TEXT", help="What people call it.")] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="TEXT", help="The same key again makes none.")] = None,
    on_complete: Annotated[
        str | None, typer.Option("--on-complete", metavar="KIND", help="Enqueued when all have ended.")
    ] = None,
    on_success: Annotated[
        str | None, typer.Option("--on-success", metavar="KIND", help="Enqueued when all have completed.")
    ] = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Make a batch of a file: nothing is created unless every line is right."""

    async def make(own: Operator) -> Batch:
        with read_items(file, kind) as found:
            own.of(BatchService).check(found())
            return await own.of(BatchService).create(
                (item for _, item in found()),
                name=name,
                key=key,
                on_complete=None if on_complete is None else (on_complete, None),
                on_success=None if on_success is None else (on_success, None),
            )

    made = operate(url, app, make, by=by, creates=True)
    if json:
        output.emit(batch_document(made))
        return
    _say(made)
    output.say(output.suggest(f"watch it with: redrive batch watch {made.id}"))
