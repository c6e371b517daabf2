"""``redrive retry``, ``forget``, ``flush``, ``purge`` and ``replay``: one task, some, or very many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

import typer

from redrive.app import App
from redrive.cli import output
from redrive.cli.act import report
from redrive.cli.bulk import follow, told
from redrive.cli.confirm import DryRun, Yes, confirm
from redrive.cli.filters import filtered, worded
from redrive.cli.options import AppName, By, Json, Reason, Url, actor
from redrive.cli.session import with_store
from redrive.errors import ApprovalNeeded, InvalidInput
from redrive.kernel.failed import Failures
from redrive.kernel.operation import Action, Canary, Operation, facts
from redrive.kernel.records import Record
from redrive.kernel.store import Store
from redrive.kernel.task import State
from redrive.ops import actions, failed, inspect, operations
from redrive.ops.wording import counted

MaybeIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Task ids, one or more.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="Everything that is failed (needs approval).")]
Plan = Annotated[str | None, typer.Option("--plan", metavar="TOKEN", help="Exactly the tasks of a preview.")]
Rate = Annotated[float | None, typer.Option("--rate", metavar="N", help="At most so many tasks a second.")]
First = Annotated[
    int | None,
    typer.Option("--canary", metavar="N", min=1, max=500, help="Retry so many first, the rest if they succeed."),
]
Percent = Annotated[
    float, typer.Option("--percent", metavar="P", min=0.1, max=100, help="How many of the canaries have to succeed.")
]
StopOnReturn = Annotated[
    bool, typer.Option("--stop-on-return", help="Stop when a task fails again by a cause that was retried.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Follow the operation to its end.")]


@filtered
def retry(
    which: Failures, ids: MaybeIds = None, everything: All = False, plan: Plan = None, rate: Rate = None,
    canary: First = None, percent: Percent = 100.0, stop_on_return: StopOnReturn = False, wait: Wait = False,
    dry_run: DryRun = False, yes: Yes = False, reason: Reason = None, by: By = None, url: Url = None,
    app: AppName = None, json: Json = False,
) -> None:  # fmt: skip
    """Run failed or cancelled tasks again, with fresh attempts: by id, or as a bulk operation all that match."""
    chosen = _one_way(ids, which, everything, plan)
    if chosen == "ids":
        _by_id(ids or [], dry_run, reason, by, url, app, json)
        return
    first = None if canary is None else Canary(canary, percent)
    how: dict[str, Any] = {"rate": rate, "canary": first, "stop_on_return": stop_on_return, "plan": plan}
    begin_bulk(Action.RETRY, which, how, wait, dry_run, yes, reason, by, url, app, json)


@filtered
def forget(
    which: Failures, ids: MaybeIds = None, rate: Rate = None, wait: Wait = False, dry_run: DryRun = False,
    yes: Yes = False, reason: Reason = None, by: By = None, url: Url = None, app: AppName = None, json: Json = False,
) -> None:  # fmt: skip
    """Give failed tasks up: they leave the list of failures for history, from where they can still be retried."""
    if _one_way(ids, which, False, None) == "ids":
        wanted = [inspect.parse_id(value) for value in ids or []]
        if dry_run:
            _foretell(wanted, "forgotten", (State.FAILED,), url, app, json)
            return
        result = with_store(url, app, lambda _, store: actions.forget(store, wanted, actor=actor(by), reason=reason))
        report(result, "forgotten", json)
        return
    begin_bulk(Action.FORGET, which, {"rate": rate}, wait, dry_run, yes, reason, by, url, app, json)


def flush(
    wait: Wait = False, dry_run: DryRun = False, yes: Yes = False, reason: Reason = None, by: By = None,
    url: Url = None, app: AppName = None, json: Json = False,
) -> None:  # fmt: skip
    """Give all failures up, once a second operator agrees."""
    begin_bulk(Action.FORGET, Failures(), {}, wait, dry_run, yes, reason, by, url, app, json)


def purge(
    queue: Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Of this queue.")] = None,
    kind: Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Of this kind.")] = None,
    wait: Wait = False, dry_run: DryRun = False, yes: Yes = False, reason: Reason = None, by: By = None,
    url: Url = None, app: AppName = None, json: Json = False,
) -> None:  # fmt: skip
    """Give waiting tasks up (queued, delayed, paused), once a second operator agrees."""
    if queue is None and kind is None:
        raise typer.BadParameter("say which: --queue NAME, --kind KIND, or both")
    begin_bulk(Action.PURGE, Failures(queue=queue, kind=kind), {}, wait, dry_run, yes, reason, by, url, app, json)


@filtered
def replay(
    which: Failures,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1_000_000, help="At most so many.")] = 100,
    dry_run: DryRun = False, yes: Yes = False, reason: Reason = None, by: By = None, url: Url = None,
    app: AppName = None, json: Json = False,
) -> None:  # fmt: skip
    """Retry failed tasks here and now, the ones that failed first, up to a limit."""

    async def count(application: App, store: Store) -> tuple[int, int | None]:
        return min(await store.count_failed(which), limit), application.settings.approved_above

    number, above = with_store(url, app, count)
    if above is not None and number > above and not dry_run:
        raise ApprovalNeeded(
            f"{counted(number)} are more than the {above} that one operator may replay alone",
            hint="as an operation it can be approved: redrive retry, with the same filters",
        )
    if dry_run or not number:
        _say_batch({"matched": number, "retried": 0, "skipped": 0, "dry_run": dry_run}, which, json)
        return
    confirm(f"replay {counted(number, 'failed task')} ({worded(which)})?", yes)
    done = with_store(url, app, lambda _, store: _replayed(store, which, limit, actor(by), reason))
    _say_batch(done, which, json)


async def _replayed(store: Store, which: Failures, limit: int, by: str, reason: str | None) -> dict[str, Any]:
    sums: dict[str, Any] = {"matched": 0, "retried": 0, "skipped": 0, "dry_run": False, "batches": []}
    # What fails again meanwhile is not replayed a second time.
    end, _ = await store.failed_end(which)
    after = 0
    while sums["matched"] < limit:
        piece = min(failed.MOST_AT_ONCE, limit - sums["matched"])
        tasks = await store.failed(which, limit=piece, after=after, upto=end)
        if not tasks:
            break
        after = tasks[-1].failed_seq or after
        meant = failed.Chosen({task.id: task.failed_seq for task in tasks})
        result = await failed.retry_tasks(store, meant, actor=by, reason=reason, facts=facts(which))
        sums["matched"] += result.matched
        sums["retried"] += len(result.retried)
        sums["skipped"] += len(result.skipped)
        sums["batches"].append(result.batch_id)
    return sums


def _say_batch(done: dict[str, Any], which: Failures, json: bool) -> None:
    if json:
        output.emit(done)
    elif done["dry_run"]:
        output.say(f"{counted(done['matched'])} would be replayed ({worded(which)})")
    elif not done["matched"]:
        output.say(f"nothing to replay ({worded(which)})")
    else:
        skipped = f", {done['skipped']} skipped" if done["skipped"] else ""
        output.say(f"{counted(done['retried'])} replayed{skipped} ({worded(which)})")


def _one_way(ids: Sequence[str] | None, which: Failures, everything: bool, plan: str | None) -> str:
    ways = {"ids": bool(ids), "filter": which != Failures(), "all": everything, "plan": plan is not None}
    chosen = [name for name, used in ways.items() if used]
    if len(chosen) != 1:
        raise typer.BadParameter("say which tasks, in one way: ids, filters like --kind, --plan TOKEN, or --all")
    return chosen[0]


def _by_id(
    ids: Sequence[str], dry_run: bool, reason: str | None, by: str | None, url: str | None, app: str | None, json: bool
) -> None:
    wanted = [inspect.parse_id(value) for value in ids]
    if dry_run:
        _foretell(wanted, "retried", (State.FAILED, State.CANCELLED), url, app, json)
        return
    result = with_store(url, app, lambda _, store: actions.retry(store, wanted, actor=actor(by), reason=reason))
    report(result, "retried", json)


def _foretell(
    wanted: Sequence[UUID], verb: str, possible: tuple[State, ...], url: str | None, app: str | None, json: bool
) -> None:
    async def look(_: App, store: Store) -> tuple[list[UUID], dict[UUID, str]]:
        would, skipped = list[UUID](), dict[UUID, str]()
        for task_id in dict.fromkeys(wanted):
            task = await store.get(task_id)
            if task is not None and task.state in possible:
                would.append(task_id)
            else:
                skipped[task_id] = "not found" if task is None else f"it is {task.state.value}"
        return would, skipped

    would, skipped = with_store(url, app, look)
    if json:
        output.emit({"would": would, "skipped": {str(i): why for i, why in skipped.items()}, "dry_run": True})
        return
    output.say(*(f"{task_id}  would be {verb}" for task_id in would))
    output.say(*(f"{task_id}  would be left alone: {why}" for task_id, why in skipped.items()))


def begin_bulk(
    action: Action, which: Failures, how: dict[str, Any], wait: bool, dry_run: bool, yes: bool, reason: str | None,
    by: str | None, url: str | None, app: str | None, json: bool,
) -> None:  # fmt: skip
    plan = how.get("plan")
    number = with_store(url, app, lambda _, store: operations.foresee(store, action, which, plan))
    set_of = "the plan" if plan is not None else worded(which) if action is not Action.PURGE else _waiting(which)
    if dry_run or not number:
        if json:
            output.emit({"action": action.value, "matched": number, "dry_run": dry_run})
        else:
            output.say(f"{counted(number)} matching ({set_of})" + ("; nothing was done" if number else ""))
        return
    confirm(f"{action.value} {counted(number)} ({set_of})?", yes)

    async def begin(application: App, store: Store) -> tuple[Operation, Record | None]:
        return await operations.begin(
            store, action, which, actor=actor(by), reason=reason, approvals_above=application.settings.approved_above,
            **how,
        )  # fmt: skip

    operation, approval = with_store(url, app, begin)
    if not (wait and json):  # stdout is one document
        told(operation, approval, json)
    if wait:
        follow(operation.id, url, app, json)


def _waiting(which: Failures) -> str:
    if which == Failures():
        raise InvalidInput("a purge needs a queue or a kind")
    return "waiting, " + worded(which)
