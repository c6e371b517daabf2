"""Acts on tasks named by their ids, and says what becomes of each."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import typer

from redrive.cli.support import output
from redrive.cli.support.follow import say_outcomes
from redrive.cli.support.session import operate, store_named
from redrive.cli.support.start_operation import Ask, say_approval
from redrive.errors import RedriveError, TaskNotFound
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.task import State
from redrive.ops import actions, inspect
from redrive.ops.operations.lifecycle import How
from redrive.ops.operations.retry import RetryResult
from redrive.ops.operator import Operator


def one_way(ids: Sequence[str] | None, which: FailureFilter, everything: bool | None, plan: str | None) -> str:
    """Refuses more than one way of naming tasks, or none. ``everything`` None: there is no such way."""
    ways = {"ids": bool(ids), "filter": which != FailureFilter(), "all": everything, "plan": plan is not None}
    chosen = [name for name, used in ways.items() if used]
    if len(chosen) != 1:
        last = ", --plan TOKEN, or --all" if everything is not None else ", or --plan TOKEN; redrive flush is for all"
        raise typer.BadParameter(f"say which tasks, in one way: ids, filters like --kind{last}")
    return chosen[0]


def refuse_pace(how: How, ask: Ask) -> None:
    """Refuses a rate or canary for tasks that are named by id."""
    if how.paced or ask.wait:
        raise typer.BadParameter("tasks named by id are dealt with at once: --rate, --canary, --wait are for filters")


def by_id(ids: Sequence[str], verb: str, possible: tuple[State, ...], ask: Ask) -> None:
    """Acts on the named tasks, or with ``--dry-run`` says what would become of them."""
    if ask.dry_run:
        _dry_run(ids, verb, possible, ask)
        return

    async def act(own: Operator) -> actions.Result:
        do = own.failures.retry if verb == "retried" else own.failures.forget
        return await do(await own.tasks.meant(ids), ask.reason)

    report(operate(ask.url, ask.app, act, by=ask.by, ids=ids), verb, ask.json, store_named(ask.url, ask.app))


def _dry_run(ids: Sequence[str], verb: str, possible: tuple[State, ...], ask: Ask) -> None:
    async def look(own: Operator) -> RetryResult:
        return await own.failures.dry_run(await own.tasks.meant(ids), possible)

    told = operate(ask.url, ask.app, look, by=ask.by, ids=ids)
    if ask.json:
        skipped = {str(task_id): why for task_id, why in told.skipped.items()}
        output.emit(
            {"would": told.would_retry, "skipped": skipped, "dry_run": True, "needs_approval": told.needs_approval}
        )
        return
    output.say(*(f"{task_id}  would be {verb}" for task_id in told.would_retry))
    output.say(*(f"{task_id}  would be left alone: {why}" for task_id, why in told.skipped.items()))
    say_approval(told.needs_approval)


def report(result: actions.Result, verb: str, json: bool, store: str) -> None:
    """Says what was done and what was not; anything left undone makes the command fail. ``store``: where was looked."""
    if json:
        skipped = {str(task_id): why for task_id, why in result.skipped.items()}
        notes = {str(task_id): text for task_id, text in result.notes.items()}
        document = {"done": result.done, "requested": result.requested, "skipped": skipped, "notes": notes}
        output.emit(document | ({} if result.operation is None else {"operation": result.operation}))
    else:
        output.say(*(f"{task_id}  {verb}" for task_id in result.done))
        told = {task_id: result.notes.get(task_id, "asked to stop") for task_id in result.requested}
        output.say(*(f"{task_id}  running; {what}" for task_id, what in told.items()))
        say_outcomes([result.operation] if result.operation and result.done else [])
    for task_id, why in result.skipped.items():
        output.report(_refusal(task_id, verb, why, store), json)
    if result.skipped:
        raise typer.Exit(1)


def _refusal(task_id: UUID, verb: str, why: str, store: str) -> RedriveError:
    if why == "not found":
        return TaskNotFound(
            f"there is no task {task_id}", hint=f"{inspect.NOT_KEPT}; or is it in another store than {store}?"
        )
    hint = f"redrive show {task_id} tells what happened to it"
    return actions.refused(task_id, verb, why, hint)
