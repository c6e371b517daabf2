"""Says what became of an operation that was begun, and follows it to its end."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Sequence

import typer

from redrive.cli.support import output
from redrive.cli.support.operation_words import (
    having_operation,
    operation_document,
)
from redrive.cli.support.session import operate
from redrive.kernel.operation import FINAL, Operation, Status, facts
from redrive.kernel.records import Record
from redrive.kernel.wording import counted
from redrive.ops import views
from redrive.ops.operations.consequences import Obstacle
from redrive.ops.operations.outcome import FailedBy, RetryOutcome
from redrive.ops.operator import Operator
from redrive.ops.views import answers_text

LOOK_EVERY_S = 0.5
STUCK_AFTER_S = 3.0
STILL_FOR_S = 5.0
_NAMED = re.compile(r"\btask ([0-9a-f]{8}-[0-9a-f-]{27})")  # in a note: how to look at it is this face's to say


def say_obstacles(found: Iterable[Obstacle]) -> None:
    """Warns of what keeps retried tasks from running, with the command against it."""
    output.say(*(f"warning: {one.text}; {output.suggest(one.fix)}" for one in found))


def say_started(
    operation: Operation, approval: Record | None, json: bool, name: str, warned: Sequence[Obstacle] = ()
) -> None:
    """Says what was begun, and what it waits for; ``name`` is what the user calls it."""
    if json:
        output.emit(
            {
                "operation": operation_document(operation),
                "approval": None if approval is None else views.approval(approval),
                "matched": operation.total,
                "needs_approval": None if approval is None else approval.body["needed"],
                "dry_run": False,
                "warnings": [one.document for one in warned],
            }
        )
    elif approval is None:
        output.say(
            f"operation {operation.id} has begun: {name} of {_about(operation)}",
            output.suggest(f"watch it with: redrive operations watch {operation.id}"),
        )
    else:
        output.say(
            f"operation {operation.id} waits for a second operator, because {approval.body['needed']}",
            output.suggest(f"somebody else: redrive approvals approve {approval.id} --by NAME"),
        )


def say_outcomes(operations: Iterable[str]) -> None:
    """Says how to see what becomes of tasks that were retried here and now."""
    output.say(*(output.suggest(f"what becomes of them: redrive operations show {one}") for one in operations))


def _about(operation: Operation) -> str:
    return counted(operation.total) if operation.work is None else operation.work.subject


def follow(operation_id: str, url: str | None, app: str | None, json: bool) -> None:
    """Follows an operation and the tasks that it retries, with a bar on a terminal; exit code 1 when it or one of them
    did not end well."""
    found, became = followed(operation_id, url, app)
    if json:
        output.emit(operation_document(found, became))
    else:
        note = f": {note_of(found)}" if note_of(found) else ""
        of = f"{found.done} of {found.total} done" if found.total else f"{found.done} done"
        output.say(f"operation {found.id} is {found.status}: {of}{note}")
        _say_retried(found, became)
    went_wrong = found.status is not Status.COMPLETED or bool(found.total and not found.done)
    if went_wrong or (became is not None and became.failed_again):
        raise typer.Exit(1)


def followed(operation_id: str, url: str | None, app: str | None) -> tuple[Operation, RetryOutcome | None]:
    """Follows an operation, with a bar on a terminal; returns it at its end, and what became of its tasks."""
    try:
        return operate(url, app, lambda own: _followed(own, operation_id), has=having_operation(operation_id))
    except KeyboardInterrupt:
        watching = output.suggest(f"redrive operations watch {operation_id}")
        typer.echo(f"operation {operation_id} goes on: {watching}", err=True)
        raise


async def _followed(own: Operator, operation_id: str) -> tuple[Operation, RetryOutcome | None]:
    """Returns the operation at its end, and what became of its tasks."""
    found = await own.operations.get(operation_id)
    held_up = _HeldUp(found)
    with output.bar(found.total or None) as shown:
        task = shown.add_task(found.verb, total=found.total)
        while found.status not in FINAL:
            if (why := await held_up.look(own, found)) is not None:
                shown.console.print(output.clean(output.suggest(why)), markup=False, highlight=False, soft_wrap=True)
            state = found.status.value if not found.testing else "canaries run"
            shown.update(task, completed=found.done + found.skipped, description=f"{found.verb}: {state}")
            await asyncio.sleep(LOOK_EVERY_S)
            found = await own.operations.get(operation_id)
    return found, await _ended(own, found)


async def _ended(own: Operator, operation: Operation) -> RetryOutcome | None:
    """Returns what became of its tasks, once all have ended or nothing has moved for a while: one may run for hours, or
    wait for a worker that nobody starts."""
    became, since = await own.operations.retried(operation), time.monotonic()
    while became is not None and became.unfinished and time.monotonic() - since < STILL_FOR_S:
        await asyncio.sleep(LOOK_EVERY_S)
        if (now := await own.operations.retried(operation)) != became:
            became, since = now, time.monotonic()
    return became


class _HeldUp:
    """Finds out why nothing happens until somebody does something: whoever watches should know what, once."""

    def __init__(self, operation: Operation) -> None:
        self._seen = operation
        self._since = time.monotonic()
        self.said: str | None = None

    async def look(self, own: Operator, operation: Operation) -> str | None:
        """Returns what to say now, if it was not said already, in other words or with other numbers."""
        if operation != self._seen:
            self._seen, self._since = operation, time.monotonic()
        code, text = await self._why(own, operation)
        answers_text, self.said = self.said, code
        return text if code != answers_text else None

    async def _why(self, own: Operator, operation: Operation) -> tuple[str | None, str | None]:
        if operation.status is Status.WAITING:
            return (
                "waiting",
                f"it waits for a second operator: redrive approvals approve {operation.approval} --by NAME",
            )
        if operation.status is Status.PAUSED:
            return "paused", f"it is paused: redrive operations resume {operation.id}"
        if time.monotonic() - self._since < STUCK_AFTER_S:
            return None, None
        if operation.testing and operation.canary is not None:
            for task in (await own.tasks.get_many(operation.canary.ids)).values():
                for reason in await own.tasks.why(task):
                    if reason.code != "failed":
                        fix = f"; {reason.fix}" if reason.fix else ""
                        return reason.code, f"canary {task.id} does not run: {reason.full}{fix}"
            return None, None
        if not await own.operations.has_driver():
            return "no_worker", "no worker is alive, and workers carry it out: redrive work --app module:app"
        return None, None


async def show_with_tasks(own: Operator, operation_id: str) -> tuple[Operation, RetryOutcome | None]:
    """Returns an operation, and what became of its tasks so far."""
    found = await own.operations.get(operation_id)
    return found, await own.operations.retried(found)


def say_operation(operation: Operation, json: bool, became: RetryOutcome | None = None) -> None:
    """Says how far an operation has come, and what became of its tasks, where that was looked for."""
    if json:
        output.emit(operation_document(operation, became))
        return
    output.say(
        f"{operation.verb}  {operation.status}  {operation.id}",
        f"by {operation.actor}" + (f": {operation.reason}" if operation.reason else ""),
        f"{operation.done} done, {operation.skipped} skipped of {operation.total or 'an unknown number'}",
    )
    if operation.work is not None:
        told = [f"{name.replace('_', ' ')}: {value}" for name, value in operation.work.result.items() if value]
        output.say(operation.work.subject, *told)
    output.say(*answers_text(operation.fixed, operation.idempotent))
    for name, value in facts(operation.which).items():
        output.say(f"{name.replace('_', ' ')}: {output.shorten(value, 200)}")
    if operation.rate is not None:
        output.say(f"at most {operation.rate:g} a second")
    if operation.canary is not None:
        output.say(
            f"canary: the first {operation.canary.first}, of which {operation.canary.percent:g} % must succeed: "
            f"{_canary_text(operation)}"
        )
    if note_of(operation):
        output.say(note_of(operation))
    _say_retried(operation, became)


def _canary_text(operation: Operation) -> str:
    if operation.canary is not None and operation.canary.passed:
        return "passed"
    if operation.status in FINAL:
        return "not passed"
    return "running" if operation.testing else "to come"


def _say_retried(operation: Operation, became: RetryOutcome | None) -> None:
    if became is None or not operation.done:
        return
    output.say(became.text)
    if became.waits is not None:
        output.say(f"one that waits: {became.waits.text}")
        output.say(*([] if became.waits.fix is None else [output.suggest(became.waits.fix)]))
    output.say(*(f"  {one.n:,} failed again by {one.code}: {_cause(one)}" for one in became.causes))
    if became.number_of_causes > len(became.causes):
        output.say(f"  and by {became.number_of_causes - len(became.causes):,} more causes")
    output.say(*(output.suggest(f"redrive show {task_id}") for task_id in became.again))
    if became.oldest is not None:
        since = output.ago(became.oldest.started_at)
        output.say(
            f"workers run the code that they were started with ({became.oldest.id}: {since}): restart them after a fix"
        )
    if became.unfinished and operation.status in FINAL:
        output.say(output.suggest(f"look again: redrive operations show {operation.id}"))


def _cause(one: FailedBy) -> str:
    said = "" if one.row is None else f"{output.shorten(one.row.message, 100)}; "
    return said + output.suggest(f"redrive causes show {one.fingerprint}")


def note_of(operation: Operation) -> str:
    """Returns how it ended; also that others were quicker with some."""
    if operation.note or operation.status is not Status.COMPLETED:
        result = {} if operation.work is None else operation.work.result
        error = result.get("error") or next(iter(result.get("refused", ())), None)
        said = ": ".join(str(part) for part in (operation.note, error) if part)
        return output.suggest(_NAMED.sub(r"redrive show \1", said))
    skipped = [f"{operation.skipped} skipped"] if operation.skipped else []
    return ", ".join([*skipped, *([f"{operation.gone} dealt with by others before"] if operation.gone else [])])
