"""Begins a bulk operation for a command: look, say what it is about, ask, begin, and follow it if wanted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from redrive.cli.support import output
from redrive.cli.support.connections import on_chosen, on_this
from redrive.cli.support.filters import filter_text
from redrive.cli.support.follow import follow, say_obstacles, say_started
from redrive.cli.support.options import (
    AppName,
    By,
    Command,
    DryRun,
    Json,
    Reason,
    Url,
    Yes,
    confirm,
    option_of,
    with_options,
)
from redrive.cli.support.session import operate
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import OF_WAITING, Action
from redrive.kernel.wording import counted
from redrive.ops.connections import having
from redrive.ops.given import flat, gathered, typed
from redrive.ops.operations.lifecycle import AS_EVER, HOW, How
from redrive.ops.operator import Operator
from redrive.ops.operator.operations import BegunOperation, OperationPreview

MOST_WITHHELD_NAMED = 5
ANSWERS = ("fixed", "idempotent")  # of what may be about everything
PACE = tuple(one.name for one in flat([HOW]) if one.name not in ANSWERS)  # of a retry
Wait = Annotated[bool, typer.Option("--wait", help="Follow the operation and its tasks to their end.")]
Plan = Annotated[str | None, typer.Option("--plan", metavar="TOKEN", help="Exactly the tasks of a dry run or preview.")]


@dataclass(frozen=True)
class Ask:
    """What every such command is told besides what it is about."""

    wait: bool
    dry_run: bool
    yes: bool
    reason: str | None
    by: str | None
    url: str | None
    app: str | None
    json: bool


def with_operation_options(command: Command) -> Command:
    """Gives a command what every bulk operation is told as options; it gets them as one ``ask``."""
    options = {"wait": Wait, "dry_run": DryRun, "yes": Yes, "reason": Reason, "by": By}
    options |= {"url": Url, "app": AppName, "json": Json}
    switches = ("wait", "dry_run", "yes", "json")
    return with_options(
        command, "ask", options, lambda given: Ask(**{**given, **{n: bool(given[n]) for n in switches}})
    )


def carried_out(*names: str) -> Callable[[Command], Command]:
    """Returns what gives a command options for how its operation is carried out; it gets them as one ``how``."""

    added = {one.name: option_of(one) for one in flat([HOW]) if one.name in names}

    def decorate(command: Command) -> Command:
        return with_options(command, "how", added, lambda given: gathered([HOW], given)["how"])

    return decorate


def begin_bulk(
    action: Action,
    which: FailureFilter,
    ask: Ask,
    how: How = AS_EVER,
    *,
    plan: str | None = None,
    verb: str | None = None,
) -> None:
    """Begins a bulk operation: on the connection that is named or that has the plan, or one on each with ``--connection
    all``. ``verb`` is what the user calls it, where that is not the action's own name."""
    name = verb or action.value
    if plan is not None:
        at = operate(ask.url, ask.app, _connection, has=having(plan, lambda own: own.failures.planned_at(plan)))
        with on_this(None if ask.url else at):
            _begin_here(action, which, how, ask, name, plan)
        return
    on_chosen(ask.url, ask.app, lambda: _begin_here(action, which, how, ask, name, plan), looks=ask.dry_run)


async def _connection(own: Operator) -> str | None:
    return own.connection_label


def _begin_here(action: Action, which: FailureFilter, how: How, ask: Ask, name: str, plan: str | None) -> None:
    seen = operate(ask.url, ask.app, lambda own: own.operations.preview(action, which, plan, bind=True), by=ask.by)
    given_up = f"; {seen.cancelled} of them cancelled" if seen.cancelled else ""
    subject = f"{counted(seen.number)} ({_set_of(action, which, plan)}{given_up})"
    if ask.dry_run or not seen.number:
        _say_preview(name, seen, subject, how, ask)
        return
    also = ""
    if action not in OF_WAITING and seen.bound.which.everything:
        how = _with_answers(how)
        also = _unanswered(how)
    if not ask.json:
        say_withheld(seen)
        say_obstacles(seen.obstacles)
    confirm(f"{name} {subject}?", ask.yes, also)

    async def begin(own: Operator) -> BegunOperation:
        return await own.operations.begin(action, which, reason=ask.reason, seen=seen, how=how)

    begun = operate(ask.url, ask.app, begin, by=ask.by)
    if not (ask.wait and ask.json):  # stdout is one document
        say_started(begun.operation, begun.approval, ask.json, name, seen.obstacles)
    if ask.wait:
        follow(begun.operation.id, ask.url, ask.app, ask.json)


def _with_answers(how: How) -> How:
    """Returns it with what whoever retries or gives up everything has to say; asked for at a terminal."""
    if not sys.stdin.isatty():
        return how
    fixed, idempotent = how.fixed or typer.prompt("what was fixed", err=True), how.idempotent
    if idempotent is None:
        idempotent = typer.confirm("may the handlers run twice for one task (are they idempotent)?", err=True)
    return replace(how, fixed=fixed, idempotent=idempotent)


def _unanswered(how: How) -> str:
    """Returns the options that are still needed, to follow others in a hint."""
    options = [" --fixed TEXT"] if how.fixed is None else []
    return "".join([*options, *([" --idempotent (or --not-idempotent)"] if how.idempotent is None else [])])


def _say_preview(name: str, seen: OperationPreview, subject: str, how: How, ask: Ask) -> None:
    if ask.json:
        output.emit(
            {
                "action": name,
                "matched": seen.number,
                "cancelled": seen.cancelled,
                "dry_run": ask.dry_run,
                "plan": seen.plan,
                "first": seen.first,
                "needs_approval": seen.approval,
                "withheld": {str(task_id): why for task_id, why in seen.withheld.items()},
                "warnings": [one.document for one in seen.obstacles],
            }
        )
        return
    if not seen.number:
        output.say(f"nothing to {name} ({subject.partition('(')[2]}")
        return
    output.say(f"would {name} {subject}; nothing was done")
    if seen.first:
        more = f" and {seen.number - len(seen.first)} more" if seen.number > len(seen.first) else ""
        output.say(*(f"  {task_id}" for task_id in seen.first), *([f"  {more.strip()}"] if more else []))
    say_withheld(seen)
    say_obstacles(seen.obstacles)
    say_approval(seen.approval)
    if seen.plan is not None:
        command = "forget" if name in ("forget", "flush") else "retry"
        command = output.suggest(f"redrive {command} --plan {seen.plan}")
        output.say(f"exactly this, within a day: {' '.join(filter(None, [command, typed(HOW, how)]))}")


def say_withheld(seen: OperationPreview) -> None:
    """Names tasks that a retry leaves alone, the first of them."""
    if not seen.withheld:
        return
    said = list(seen.withheld.items())
    output.say(f"{counted(len(said))} of the first would be left alone:")
    output.say(*(f"  {task_id}  {why}" for task_id, why in said[:MOST_WITHHELD_NAMED]))
    if len(said) > MOST_WITHHELD_NAMED:
        output.say(f"  and {len(said) - MOST_WITHHELD_NAMED} more")


def say_approval(why: str | None) -> None:
    if why is not None:
        output.say(f"a second operator has to agree, because {why}")


def _set_of(action: Action, which: FailureFilter, plan: str | None) -> str:
    if plan is not None:
        return "the plan"
    return f"waiting, {filter_text(which)}" if action is Action.PURGE else filter_text(which)
