"""Finds a batch for a command, and follows it to its end."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from redrive.batches import cli_output
from redrive.batches.batch import Batch, BatchState
from redrive.batches.batch_service import BatchService
from redrive.batches.documents import batch_document
from redrive.cli.support.progress import bar
from redrive.feature import Operator
from redrive.feature.cli import operate, output
from redrive.ops.connections import Look, having
from redrive.ops.why import Reason

Id = Annotated[str, typer.Argument(metavar="BATCH", help="The id of a batch.")]
LOOK_EVERY_S = 0.5
STILL_AFTER_S = 5.0  # without a change before it is said what the batch waits for


def has(batch: str) -> Look[Any]:
    """Returns what finds out whether a connection has this batch."""
    return having(batch, lambda own: own.of(BatchService).is_remote(batch))


def to_the_end(batch: str, url: str | None, app: str | None, json: bool) -> None:
    """Follows a batch, with a bar on a terminal, else a line for each change; exit code 1 unless it completed."""

    async def look(own: Operator) -> Batch:
        service, drawn = own.of(BatchService), sys.stdout.isatty() and sys.stderr.isatty()
        told = Told(print_lines=not (drawn or json))
        with bar(1, draw=drawn or json) as shown:
            line = shown.add_task("batch", total=None)
            while not (found := await service.show(batch)).ended:
                shown.update(line, completed=found.total - found.pending, total=found.total)
                if told.has_stood_still(found):
                    _say_why(await service.waits_for(batch))
                await asyncio.sleep(LOOK_EVERY_S)
            return found

    found = operate(url, app, look, has=has(batch))
    if json:
        output.emit(batch_document(found))
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


def _say_why(reasons: Sequence[Reason]) -> None:
    """Says what the batch waits for; each reason once."""
    for one in reasons:
        output.warn(f"nothing moves: {one.text}" + ("" if one.fix is None else f" → {output.suggest(one.fix)}"))
