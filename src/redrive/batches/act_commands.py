"""``redrive batch cancel`` and ``retry-failed``, for batches of both sorts, ``reconcile`` and ``charge``; and follows a
batch to its end."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import typer

from redrive.batches import cli_output
from redrive.batches.batch import Batch
from redrive.batches.batch_service import BatchService
from redrive.batches.names import BatchState
from redrive.batches.views import Acted, Reconciling, new_charge, plain_document
from redrive.cli.support.follow import follow, say_started
from redrive.cli.support.operation_words import say_awaiting_approval
from redrive.cli.support.options import DryRun, Reason, Yes, confirm
from redrive.cli.support.start_operation import PACE, carried_out, say_approval
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
Wait = Annotated[bool, typer.Option("--wait", help="Follow it to its end: the operation, or the batch at a provider.")]


@dataclass(frozen=True)
class _Place:
    """Where a command looks, who acts, and how it answers."""

    batch: str
    by: str | None
    url: str | None
    app: str | None
    json: bool

    def ask(self, work: Callable[[BatchService], Awaitable[T]]) -> T:
        """Runs something with the service of batches, on the connection that has this one."""
        return operate(self.url, self.app, lambda own: work(own.of(BatchService)), by=self.by, has=has(self.batch))


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
    """Cancel what has not ended. Tasks that wait are cancelled now, those that run are asked to stop. At a provider,
    what was not started is released, the rest polled to its end."""
    at = _Place(batch, by, url, app, json)
    seen = at.ask(lambda own: own.cancel(batch, dry_run=True))
    if dry_run:
        _would("cancel", seen, json)
        return
    confirm(f"cancel {_items(seen.matched)} of batch {batch} that {_have(seen.matched)} not ended?", yes)
    _done(at.ask(lambda own: own.cancel(batch, reason)), "cancel", wait, at)


@carried_out(*PACE)
def retry_failed(
    batch: Id,
    how: How,
    dry_run: DryRun = False,
    wait: Wait = False,
    yes: Yes = False,
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Retry the items that are failed now: tasks as one operation, jobs at a provider as a new charge."""
    at = _Place(batch, by, url, app, json)
    seen = at.ask(lambda own: own.retry_failed(batch, how=how, dry_run=True))
    if dry_run:
        _would("retry", seen, json)
        return
    if seen.matched or not seen.skipped:  # else it is refused, with the same words
        if not json:
            _say_notes(seen.notes)
        confirm(f"retry {_items(seen.matched)} of batch {batch} that failed{new_charge(seen.charge, seen.unit)}?", yes)
    _done(at.ask(lambda own: own.retry_failed(batch, reason, how=how)), "retry", wait, at)


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
        _accept(_Place(_one(batch), by, url, app, json), reason)
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


def _one(batch: str | None) -> str:
    if batch is None:
        raise InvalidInput("--accept is for one batch", hint="name it: redrive batch reconcile BATCH --accept")
    return batch


def _accept(at: _Place, reason: str | None) -> None:
    number = at.ask(lambda own: own.reconcile(at.batch, reason, accept=True)).items
    if at.json:
        output.emit({"task": None, "items": number, "result": None})
        return
    if not number:
        output.say("no item has ended without its provider's word, or all of them are accepted")
        return
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
    at, items = _Place(batch, by, url, app, json), item or []
    seen = at.ask(lambda own: own.charge(batch, items, dry_run=True))
    if dry_run:
        _would("charge for", seen, json)
        return
    if seen.matched:
        told = f", {seen.charge} {seen.unit}" if seen.charge else ""
        confirm(f"charge for {_items(seen.matched)} of batch {batch} that ran all the same{told}?", yes)
    _done(at.ask(lambda own: own.charge(batch, items, reason)), "charge", False, at)


def _items(number: int) -> str:
    return f"{number} item{'' if number == 1 else 's'}"


def _say_notes(notes: Sequence[str]) -> None:
    for note in notes:
        output.say(f"  {note}")


def _have(number: int) -> str:
    return "has" if number == 1 else "have"


def _would(name: str, seen: Acted, json: bool) -> None:
    if json:
        about = {"action": name, "matched": seen.matched, "dry_run": True, "needs_approval": seen.needs_approval}
        output.emit({**about, "charge": seen.charge, "skipped": seen.skipped, "notes": list(seen.notes)})
        return
    told = new_charge(seen.charge, seen.unit)
    output.say(f"would {name} {_items(seen.matched)}{told}; nothing was done")
    _say_notes(seen.notes)
    say_approval(seen.needs_approval)


def _done(done: Acted, name: str, wait: bool, at: _Place) -> None:
    """Says what was begun, and follows it if that is wanted. With both --wait and --json stdout is one document."""
    if done.operation is not None:
        if not (wait and at.json):
            say_started(Operation.of(done.operation), done.approval, at.json, name)
        if wait:
            follow(done.operation.id, at.url, at.app, at.json)
        return
    if done.approval is not None:
        say_awaiting_approval(done.approval, at.json)
        return
    if not at.json:
        output.say(f"batch {done.batch.label}: {done.told}")
    elif not wait:
        output.emit(plain_document(done.batch))
    if wait:
        to_the_end(at.batch, at.url, at.app, at.json)


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
