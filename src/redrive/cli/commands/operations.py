"""``redrive operations`` and ``redrive approvals``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

import typer

from redrive.cli.support import output
from redrive.cli.support.options import AppName, By, Json, Reason, Url
from redrive.cli.support.progress import bar
from redrive.cli.support.session import operate
from redrive.kernel.operation import FINAL, Operation, Status, facts
from redrive.kernel.records import Record
from redrive.ops import approvals
from redrive.ops.operator import Operator
from redrive.ops.text import counted

operations_cli = typer.Typer(
    help="Bulk operations: list, show, watch, pause, resume, cancel.", invoke_without_command=True
)
approvals_cli = typer.Typer(
    help="What waits for a second operator: list, approve, reject.", invoke_without_command=True
)
Id = Annotated[str, typer.Argument(metavar="ID", help="As the list gives it.")]
Before = Annotated[int | None, typer.Option("--before", metavar="N", min=1, help="Go on from the next of a list.")]
LOOK_EVERY = 0.5
STUCK_AFTER = 3.0
T = TypeVar("T")
Change = Callable[[Operator, str, str | None], Awaitable[T]]


def told(operation: Operation, approval: Record | None, json: bool, name: str) -> None:
    """What was begun, and what it waits for; ``name`` is what the user calls it."""
    if json:
        output.emit({"operation": _document(operation), "approval": None if approval is None else _approval(approval)})
    elif approval is None:
        output.say(f"operation {operation.id} has begun: {name} of {counted(operation.total)}",
                   output.suggest(f"watch it with: redrive operations watch {operation.id}"))  # fmt: skip
    else:
        output.say(f"operation {operation.id} waits for a second operator, because {approval.body['needed']}",
                   output.suggest(f"somebody else: redrive approvals approve {approval.id} --by NAME"))  # fmt: skip


def follow(operation_id: str, url: str | None, app: str | None, json: bool) -> None:
    """To its end, with a bar on a terminal; exit code 1 when it did not end well."""
    try:
        found, again = operate(url, app, lambda own: _followed(own, operation_id))
    except KeyboardInterrupt:
        watching = output.suggest(f"redrive operations watch {operation_id}")
        typer.echo(f"operation {operation_id} goes on: {watching}", err=True)
        raise
    if json:
        output.emit({**_document(found), "failed_again": again})
    else:
        note = f": {_note(found)}" if _note(found) else ""
        output.say(f"operation {found.id} is {found.status}: {found.done} of {found.total} done{note}")
        if again:
            output.say(output.suggest(f"{again} of them failed again by now: redrive failed"))
    if found.status is not Status.COMPLETED or (found.total and not found.done):
        raise typer.Exit(1)


async def _followed(own: Operator, operation_id: str) -> tuple[Operation, int]:
    """The operation at its end, and how many of its tasks are failed again."""
    found = await own.operations.show(operation_id)
    held_up = _HeldUp(found)
    with bar(found.total) as shown:
        task = shown.add_task(found.action, total=found.total)
        while found.status not in FINAL:
            if (why := await held_up.look(own, found)) is not None:
                shown.console.print(output.clean(output.suggest(why)), markup=False, highlight=False, soft_wrap=True)
            state = found.status.value if not found.testing else "canaries run"
            shown.update(task, completed=found.done + found.skipped, description=f"{found.action}: {state}")
            await asyncio.sleep(LOOK_EVERY)
            found = await own.operations.show(operation_id)
    return found, await own.operations.failed_again(operation_id)


class _HeldUp:
    """Nothing happens until somebody does something: whoever watches should know what, once."""

    def __init__(self, operation: Operation) -> None:
        self._seen = operation
        self._since = time.monotonic()
        self._said: str | None = None

    async def look(self, own: Operator, operation: Operation) -> str | None:
        """What to say now, if it was not said already, in other words or with other numbers."""
        if operation != self._seen:
            self._seen, self._since = operation, time.monotonic()
        code, text = await self._why(own, operation)
        said, self._said = self._said, code
        return text if code != said else None

    async def _why(self, own: Operator, operation: Operation) -> tuple[str | None, str | None]:
        if operation.status is Status.WAITING:
            return "waiting", f"it waits for a second operator: redrive approvals approve {operation.approval}"
        if operation.status is Status.PAUSED:
            return "paused", f"it is paused: redrive operations resume {operation.id}"
        if time.monotonic() - self._since < STUCK_AFTER:
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


@operations_cli.callback()
def list_operations(
    context: typer.Context,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500, help="At most so many.")] = 20,
    before: Before = None, url: Url = None, app: AppName = None, json: Json = False,
) -> None:  # fmt: skip
    """Bulk operations, newest first."""
    if context.invoked_subcommand is not None:
        return
    found = operate(url, app, lambda own: own.operations.list(limit=limit, before=before))
    listed = [(Operation.of(record), record) for record in found]
    if json:
        output.emit_list([_document(operation) for operation, _ in listed], _following(found, limit))
        return
    if not listed:
        output.say("there are no operations")
        return
    output.table(
        ["id", "action", "status", "#done", "#of", "#begun", "by", "note"],
        [(o.id, o.action, o.status, o.done, o.total, output.ago(r.created_at), o.actor,
          output.shorten(_note(o), 200))
         for o, r in listed],
    )  # fmt: skip


@operations_cli.command("show")
def show_operation(operation: Id, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """One operation: what it is about, and how far it has come."""
    _say(operate(url, app, lambda own: own.operations.show(operation)), json)


@operations_cli.command("watch")
def watch(operation: Id, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Follow an operation to its end. Exit code 1 when it was stopped or cancelled."""
    follow(operation, url, app, json)


def _changing(cli: typer.Typer, name: str, change: Change[T], say: Callable[[T, bool], None], text: str) -> None:
    """A command that changes one operation or approval, and says what became of it."""

    def command(
        id: Id, reason: Reason = None, by: By = None, url: Url = None, app: AppName = None, json: Json = False
    ) -> None:
        say(operate(url, app, lambda own: change(own, id, reason), by=by), json)

    cli.command(name, help=text)(command)


@approvals_cli.callback()
def list_approvals(
    context: typer.Context, pending: Annotated[bool, typer.Option("--pending", help="Only what waits.")] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500, help="At most so many.")] = 50,
    before: Before = None, url: Url = None, app: AppName = None, json: Json = False,
) -> None:  # fmt: skip
    """What was asked for, and what became of it."""
    if context.invoked_subcommand is not None:
        return
    states = (approvals.PENDING,) if pending else ()

    async def look(own: Operator) -> tuple[list[Record], datetime]:
        return await own.approvals.list(states=states, limit=limit, before=before), await own.health.now()

    found, now = operate(url, app, look)
    if json:
        output.emit_list([_approval(record) for record in found], _following(found, limit))
        return
    if not found:
        output.say("nothing waits for approval" if pending else "nothing was asked for")
        return
    output.table(
        ["id", "state", "action", "#tasks", "asked by", "#ago", "decided by", "because", "reason"],
        [(r.id, "expired" if approvals.expired(r, now) else r.state, r.body["action"], r.body["total"],
          r.body["requested_by"], output.ago(r.created_at), r.body["decided_by"] or "", r.body["needed"],
          "; ".join([*filter(None, [r.body["reason"]]), *_said(r.body.get("fixed"), r.body.get("idempotent"))]))
         for r in found],
    )  # fmt: skip


def _following(found: Sequence[Record], limit: int) -> int | None:
    return found[-1].seq if len(found) == limit else None


def _decided(record: Record, json: bool) -> None:
    if json:
        output.emit(_approval(record))
        return
    operation = record.body["operation"]
    if record.state == approvals.APPROVED:
        output.say(f"approved: {record.body['action']} of {counted(record.body['total'])} begins",
                   output.suggest(f"watch it with: redrive operations watch {operation}"))  # fmt: skip
    else:
        output.say(f"{record.state}: operation {operation} is cancelled; nothing was done")


def _say(operation: Operation, json: bool) -> None:
    if json:
        output.emit(_document(operation))
        return
    output.say(f"{operation.action}  {operation.status}  {operation.id}",
               f"by {operation.actor}" + (f": {operation.reason}" if operation.reason else ""),
               f"{operation.done} done, {operation.skipped} skipped of {operation.total}")  # fmt: skip
    output.say(*_said(operation.fixed, operation.idempotent))
    for name, value in facts(operation.which).items():
        output.say(f"{name.replace('_', ' ')}: {output.shorten(value, 200)}")
    if operation.rate is not None:
        output.say(f"at most {operation.rate:g} a second")
    if operation.canary is not None:
        passed = "passed" if operation.canary.passed else "running" if operation.testing else "to come"
        output.say(
            f"canary: the first {operation.canary.first}, of which {operation.canary.percent:g} % must succeed: "
            f"{passed}"
        )
    if _note(operation):
        output.say(_note(operation))


def _said(fixed: str | None, idempotent: bool | None) -> list[str]:
    """What its operator answered before it began, in words."""
    twice = [] if idempotent is None else [f"handlers are {'' if idempotent else 'not '}idempotent"]
    return [*([] if fixed is None else [f"fixed: {fixed}"]), *twice]


def _note(operation: Operation) -> str:
    """How it ended; also that others were quicker with some."""
    if operation.note or operation.status is not Status.COMPLETED:
        return output.suggest(operation.note or "")
    skipped = [f"{operation.skipped} skipped"] if operation.skipped else []
    return ", ".join([*skipped, *([f"{operation.gone} dealt with by others before"] if operation.gone else [])])


def _document(operation: Operation) -> dict[str, Any]:
    return {"id": operation.id, "status": operation.status.value, **operation.body()}


def _approval(record: Record) -> dict[str, Any]:
    return {"id": record.id, "state": record.state, "created_at": record.created_at, **record.body}


_changing(
    operations_cli,
    "pause",
    lambda own, id, why: own.operations.pause(id, why),
    _say,
    "Let an operation rest; what it has done stays done.",
)
_changing(
    operations_cli,
    "resume",
    lambda own, id, why: own.operations.resume(id, why),
    _say,
    "Go on with a paused operation.",
)
_changing(
    operations_cli,
    "cancel",
    lambda own, id, why: own.operations.cancel(id, why),
    _say,
    "End an operation; what it has done stays done.",
)
_changing(
    approvals_cli, "approve", lambda own, id, why: own.approvals.approve(id, why), _decided,
    "Agree, as somebody else than who asked; the operation begins at once.",
)  # fmt: skip
_changing(
    approvals_cli,
    "reject",
    lambda own, id, why: own.approvals.reject(id, why),
    _decided,
    "Refuse; the operation is cancelled.",
)
