"""``redrive batch cancel`` and ``retry-failed``, for batches of both sorts, ``reconcile`` and ``charge``; and follows a
batch to its end."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeVar

import typer

from redrive.batches import cli_output
from redrive.batches.batch import Acted, Batch, Reconciling, new_charge, plain_document
from redrive.batches.batch_service import BatchService
from redrive.batches.names import BatchState
from redrive.cli.support.follow import follow, say_started
from redrive.cli.support.operation_words import say_awaiting_approval
from redrive.cli.support.options import DryRun, Reason, Yes, confirm
from redrive.cli.support.start_operation import PACE, Ask, carried_out, say_approval, with_operation_options
from redrive.feature import InvalidInput, Operator
from redrive.feature.cli import AppName, By, Json, Url, operate, output
from redrive.kernel.operation import Operation
from redrive.ledger.service import Ledger
from redrive.ops import why
from redrive.ops.connections import Look, having
from redrive.ops.operations.lifecycle import How

T = TypeVar("T")
Id = Annotated[str, typer.Argument(metavar="BATCH", help="The id of a batch.")]
LOOK_EVERY_S = 0.5
STILL_AFTER_S = 5.0  # without a change before it is said what the batch waits for
Call = Callable[[BatchService, bool], Awaitable[Acted]]  # whether it is a dry run


@with_operation_options
def cancel(batch: Id, ask: Ask) -> None:
    """Cancel what has not ended. Tasks that wait are cancelled now, those that run are asked to stop. At a provider,
    what was not started is released, the rest polled to its end."""

    def question(seen: Acted) -> str:
        return (
            f"cancel {_items(seen.matched)} of batch {batch} that {'has' if seen.matched == 1 else 'have'} not ended?"
        )

    _act("cancel", batch, ask, lambda own, dry: own.cancel(batch, ask.reason, dry_run=dry), question)


@carried_out(*PACE)
@with_operation_options
def retry_failed(batch: Id, how: How, ask: Ask) -> None:
    """Retry the items that are failed now: tasks as one operation, jobs at a provider as a new charge."""

    def question(seen: Acted) -> str | None:
        if not seen.matched and seen.skipped:
            return None  # it is refused, with the same words
        if not ask.json:
            _say_notes(seen.notes)
        return f"retry {_items(seen.matched)} of batch {batch} that failed{new_charge(seen.charge, seen.unit)}?"

    _act("retry", batch, ask, lambda own, dry: own.retry_failed(batch, ask.reason, how, dry), question)


def reconcile(
    batch: Annotated[str | None, typer.Argument(metavar="[BATCH]", help="The id of a batch; else all.")] = None,
    seconds: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, max=86400, help="How long to wait for what is said.")
    ] = 60.0,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept", help="Ask nobody: accept that nobody will know, so that doctor warns no more. Needs a --reason."
        ),
    ] = False,
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Ask providers about items that ended without their word, and say what ran all the same. Nothing is charged; jobs
    that still run are cancelled there, since nobody waits for them. A worker asks."""
    if accept:
        _accept(batch, Ask(False, False, False, reason, by, url, app, json))
        return

    async def ask(own: Operator) -> tuple[Reconciling, dict[str, Any] | None, str]:
        service, until = own.of(BatchService), time.monotonic() + seconds
        begun = await (service.reconcile_all(reason) if batch is None else service.reconcile(batch, reason))
        assert begun.task is not None
        while True:
            found = await service.reconciled(begun.task)
            if found is not None or time.monotonic() >= until:
                return begun, found, own.of(Ledger).unit
            await asyncio.sleep(LOOK_EVERY_S)

    begun, found, unit = operate(url, app, ask, by=by, has=None if batch is None else has(batch))
    if json:
        output.emit({"task": str(begun.task), "items": begun.items, "result": found})
        return
    if found is None:
        output.say(f"a worker asks about {_items(begun.items)}; it has not ended yet")
        output.say(output.suggest(f"what came of it: redrive show {begun.task}"))
        return
    cli_output.say_reconciled(found, unit)


def _accept(batch: str | None, ask: Ask) -> None:
    if batch is None:
        raise InvalidInput("--accept is for one batch", hint="name it: redrive batch reconcile BATCH --accept")
    number = _on(batch, ask, lambda own: own.reconcile(batch, ask.reason, accept=True)).items
    if ask.json:
        output.emit({"task": None, "items": number, "result": None})
    elif not number:
        output.say("no item has ended without its provider's word, or all of them are accepted")
    else:
        output.say(f"{_items(number)} stay{'s' if number == 1 else ''} unknown, as accepted: doctor warns no more")


def charge(
    batch: Id,
    item: Annotated[
        list[int] | None, typer.Option("--item", metavar="N", min=1, help="Only this item; can be repeated.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Charge for items of a settled batch that ended here, and whose jobs ran all the same, as the provider said when
    it was asked (redrive batch reconcile). They are completed from then on, with their results, and the customer is
    told. Each is charged once, however often this is done."""
    items = item or []

    def question(seen: Acted) -> str | None:
        told = f", {seen.charge} {seen.unit}" if seen.charge else ""
        return (
            f"charge for {_items(seen.matched)} of batch {batch} that ran all the same{told}?" if seen.matched else None
        )

    ask = Ask(False, dry_run, yes, reason, by, url, app, json)
    _act("charge for", batch, ask, lambda own, dry: own.charge(batch, items, reason, dry_run=dry), question)


def _act(name: str, batch: str, ask: Ask, call: Call, question: Callable[[Acted], str | None]) -> None:
    """Looks what it would be about, asks, and does it."""
    seen = _on(batch, ask, lambda own: call(own, True))
    if ask.dry_run:
        _would(name, seen, ask.json)
        return
    if (asked := question(seen)) is not None:
        confirm(asked, ask.yes)
    _done(_on(batch, ask, lambda own: call(own, False)), name, batch, ask)


def _on(batch: str, ask: Ask, work: Callable[[BatchService], Awaitable[T]]) -> T:
    """Runs something with the service of batches, on the connection that has this one."""
    return operate(ask.url, ask.app, lambda own: work(own.of(BatchService)), by=ask.by, has=has(batch))


def _items(number: int) -> str:
    return f"{number} item{'' if number == 1 else 's'}"


def _say_notes(notes: Sequence[str]) -> None:
    for note in notes:
        output.say(f"  {note}")


def _would(name: str, seen: Acted, json: bool) -> None:
    if json:
        about = {"action": name, "matched": seen.matched, "dry_run": True, "needs_approval": seen.needs_approval}
        output.emit({**about, "charge": seen.charge, "skipped": seen.skipped, "notes": list(seen.notes)})
        return
    told = new_charge(seen.charge, seen.unit)
    output.say(f"would {name} {_items(seen.matched)}{told}; nothing was done")
    _say_notes(seen.notes)
    say_approval(seen.needs_approval)


def _done(done: Acted, name: str, batch: str, ask: Ask) -> None:
    """Says what was begun, and follows it if that is wanted. With both --wait and --json stdout is one document."""
    if done.operation is not None:
        if not (ask.wait and ask.json):
            say_started(Operation.of(done.operation), done.approval, ask.json, name)
        if ask.wait:
            follow(done.operation.id, ask.url, ask.app, ask.json)
        return
    if done.approval is not None:
        say_awaiting_approval(done.approval, ask.json)
        return
    if not ask.json:
        output.say(f"batch {done.batch.label}: {done.told}")
    elif not ask.wait:
        output.emit(plain_document(done.batch))
    if ask.wait:
        to_the_end(batch, ask.url, ask.app, ask.json)


def has(batch: str) -> Look[Any]:
    """Returns what finds out whether a connection has this batch."""
    return having(batch, lambda own: own.of(BatchService).is_remote(batch))


def to_the_end(batch: str, url: str | None, app: str | None, json: bool) -> None:
    """Follows a batch, with a bar on a terminal, else a line for each change; exit code 1 unless it completed."""

    async def look(own: Operator) -> Batch:
        service, drawn = own.of(BatchService), sys.stdout.isatty() and sys.stderr.isatty()
        told = Told(print_lines=not (drawn or json))
        with output.bar(1, draw=drawn or json) as shown:
            line = shown.add_task("batch", total=None)
            while not (found := await service.find(batch)).ended:
                shown.update(line, completed=found.total - found.pending, total=found.total)
                if told.has_stood_still(found):
                    _say_why(await service.waits_for(found))
                await asyncio.sleep(LOOK_EVERY_S)
            return found

    found = operate(url, app, look, has=has(batch))
    if json:
        output.emit(plain_document(found))
    else:
        cli_output.say(found)
    if found.state is not BatchState.COMPLETED:
        raise typer.Exit(1)


class Told:
    """Remembers what was last seen of a batch: prints what has changed, and notices when nothing does."""

    def __init__(self, print_lines: bool) -> None:
        self._print_lines = print_lines
        self._seen: tuple[object, ...] = ()
        self._since = time.monotonic()

    def has_stood_still(self, batch: Batch) -> bool:
        """Returns whether nothing has changed for ``STILL_AFTER_S``; then not again until as much time has passed."""
        seen = (batch.state, batch.total, batch.pending, batch.failed, batch.remote and batch.remote.processing)
        now = time.monotonic()
        if seen != self._seen:
            self._seen, self._since = seen, now
            if self._print_lines:
                output.say(cli_output.line_of(batch))
                sys.stdout.flush()  # whoever reads a pipe waits for it
        if now - self._since < STILL_AFTER_S:
            return False
        self._since = now
        return True


def _say_why(reasons: Sequence[why.Reason]) -> None:
    """Says what the batch waits for; each reason once."""
    for one in reasons:
        output.warn(f"nothing moves: {one.text}" + ("" if one.fix is None else f" → {output.suggest(one.fix)}"))
