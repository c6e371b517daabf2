"""Retries tasks here and now: those of a selection, as an operation that its caller carries out. What is too much for
that, or needs a second operator, is begun instead (``lifecycle``), and workers carry it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.ids import new_id
from redrive.kernel.audit import skip_reason
from redrive.kernel.failure_filter import EVERY_FAILURE, FailedRef, FailureFilter
from redrive.kernel.operation import Operation, Status
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put
from redrive.ops.actions import check_actor, check_reason, log_retried
from redrive.ops.allowance import Rule, alone, judge
from redrive.ops.operations import plans
from redrive.ops.operations.selection import (
    MOST_RETRIED_AT_ONCE,
    Selection,
    check_at_once,
    planned_retry,
    select,
    would_reach,
)

DEFAULT_RETRY_LIMIT = 50


@dataclass(slots=True)
class RetryResult:
    """What a retry did, or with ``dry_run`` would do: ``matched`` tasks were meant, of which ``cancelled`` were
    cancelled. ``retried``, ``would_retry`` and ``skipped`` (with why) name tasks, up to the first 500 of each; ``done``
    and ``left`` count all. ``bulk_ids``: the operations that say what becomes of them; none where nothing was to be
    done."""

    matched: int = 0
    cancelled: int = 0
    done: int = 0
    left: int = 0
    retried: list[UUID] = field(default_factory=list)
    would_retry: list[UUID] = field(default_factory=list)
    skipped: dict[UUID, str] = field(default_factory=dict)
    dry_run: bool = False
    needs_approval: str | None = None  # why a second operator would have to agree
    bulk_ids: list[str] = field(default_factory=list)

    @property
    def bulk_id(self) -> str | None:
        return self.bulk_ids[0] if self.bulk_ids else None

    def add(self, retried: Sequence[UUID], skipped: dict[UUID, str]) -> None:
        """Counts a piece."""
        self.done, self.left = self.done + len(retried), self.left + len(skipped)
        self.retried += retried[: max(MOST_RETRIED_AT_ONCE - len(self.retried), 0)]
        if len(self.skipped) < MOST_RETRIED_AT_ONCE:
            self.skipped |= skipped

    @property
    def numbers(self) -> dict[str, object]:
        """It without the names of tasks, for a retry of any number."""
        return {
            "matched": self.matched,
            "cancelled": self.cancelled,
            "retried": self.done,
            "skipped": self.left,
            "dry_run": self.dry_run,
            "needs_approval": self.needs_approval,
            "bulk_ids": self.bulk_ids,
        }


async def retry_matching(
    store: Store,
    which: FailureFilter = EVERY_FAILURE,
    *,
    actor: str,
    rule: Rule,
    reason: str | None = None,
    limit: int | None = None,
    plan: str | None = None,
    dry_run: bool = False,
) -> RetryResult:
    """Retries up to ``limit`` tasks that match, the ones that failed first; or exactly those of a plan. Tasks that are
    named, by id or by the plan, and in no state to be retried are returned, and audited, as skipped. What a second
    operator has to agree to is refused: it is judged by how many it retries, with what the same person did lately."""
    if plan is None:
        selection = await select(store, which, check_at_once(which, limit, DEFAULT_RETRY_LIMIT))
    elif which != EVERY_FAILURE or limit is not None:
        raise InvalidInput("a plan says what is retried", hint="leave the filters and the limit out")
    else:
        selection = await plans.select_planned(store, plan)
    if dry_run:
        return await foresee(store, [selection], check_actor(actor), rule)
    return await retry_now(store, [selection], actor=actor, rule=rule, reason=reason)


async def retry_now(
    store: Store,
    selections: Sequence[Selection],
    *,
    actor: str,
    rule: Rule,
    reason: str | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> RetryResult:
    """Retries these, piece by piece, the ones that failed first, each set as one operation. What a second operator has
    to agree to is refused. All of it is counted with the first piece: it is refused as a whole, or not at all.
    ``progress`` gets the number of tasks of each piece."""
    who, why = check_actor(actor), check_reason(reason)

    async def act(puts: Sequence[Put]) -> RetryResult:
        result = RetryResult()
        for selection in selections:
            operation = _operation(selection, who, why)
            async for piece in selection.pieces(store):
                operation = await _retry(store, operation, selection, piece, puts, result)
                puts = ()
                progress(len(piece))
        return result

    return await alone(store, rule, who, planned_retry(selections), act)


def _operation(selection: Selection, actor: str, reason: str | None) -> Operation:
    """Returns the operation of a retry that its caller carries out: it is over as far as it has come, so that no worker
    goes on with it, and says what became of its tasks as others do."""
    what = selection.matches.retry(selection.plan)
    return Operation(str(new_id()), what, selection.which, actor, reason, 0, status=Status.COMPLETED)


async def _retry(
    store: Store,
    operation: Operation,
    selection: Selection,
    tasks: Sequence[FailedRef],
    puts: Sequence[Put],
    result: RetryResult,
) -> Operation:
    """Retries one piece, each task only if it is still failed by the failure that is meant; ``puts`` land with it.
    Returns the operation as it is then."""
    commit = operation.carry_out_here(tasks, selection.excluded)
    commit.puts = [*commit.puts, *puts]
    applied = await store.apply(commit)
    retried = [task.id for task in tasks if task.id not in applied.skipped]
    skipped = {task_id: skip_reason(state) for task_id, state in applied.skipped.items()}
    result.matched += len(tasks)
    result.cancelled += sum(selection.matches.given_up(task.failed_seq or 0) for task in tasks)
    result.add(retried, {**selection.excluded, **skipped})
    if operation.id not in result.bulk_ids:
        result.bulk_ids.append(operation.id)
    await log_retried(store, retried, actor=operation.actor, reason=operation.reason, bulk_id=operation.id)
    return operation.after_piece_here(len(retried), len(skipped) + len(selection.excluded))


async def foresee(store: Store, selections: Sequence[Selection], actor: str, rule: Rule) -> RetryResult:
    """Returns what a retry of these would do as of now: of each task that is named, else how many; and whether a second
    operator would have to agree."""
    result = RetryResult(dry_run=True)
    for one in selections:
        result.matched += one.number
        result.cancelled += one.cancelled
        if one.tasks is not None:
            would, skipped = await would_reach(store, one)
            result.would_retry += would
            result.skipped |= skipped
    result.left = len(result.skipped)
    result.needs_approval = (await judge(store, rule, actor, planned_retry(selections))).why
    return result
