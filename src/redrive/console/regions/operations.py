"""The progress of operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from redrive.console.templates_env import render
from redrive.kernel.audit import AuditFilter
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Operation, Status
from redrive.ops import views
from redrive.ops.operations.lifecycle import can_put_back
from redrive.ops.operations.outcome import FailedBy, RetryOutcome
from redrive.ops.operator import Operator
from redrive.ops.views import ApprovalView, View

SHOWN = 20


@dataclass(slots=True, frozen=True)
class Progress:
    """An operation, what became of its tasks, which failed again, and whether somebody carries it out."""

    operation: View
    retried: RetryOutcome | None
    again: list[View]
    has_driver: bool
    approval: ApprovalView | None  # that it waits for
    causes: list[View]  # by which tasks failed again, those by which most did first
    can_put_back: bool  # what it gave up


async def look(operator: Operator, operation_id: str) -> Progress:
    record = await operator.operations.record(operation_id)
    which = FailureFilter(bulk_id=operation_id)
    listed = await operator.failures.list(which, limit=SHOWN)
    became = await operator.operations.retried(Operation.of(record))
    return Progress(
        views.operation(record, sight=operator.sight),
        became,
        [views.task(one, operator.sight) for one in listed.tasks],
        await operator.operations.has_driver(),
        await _awaited(operator, Operation.of(record)),
        [] if became is None else [_cause(one, operator) for one in became.causes],
        can_put_back(Operation.of(record)),
    )


def _cause(one: FailedBy, operator: Operator) -> View:
    row = one.row
    message = None if row is None or not operator.sight.whole else row.message
    summary = None if row is None else row.summary
    return View(fingerprint=one.fingerprint, n=one.n, code=one.code, message=message, summary=summary)


async def _awaited(operator: Operator, operation: Operation) -> ApprovalView | None:
    if operation.status is not Status.WAITING or operation.approval is None:
        return None
    return await operator.approvals.show(operation.approval)


async def rows(operator: Operator, operation_id: str) -> list[View]:
    """Returns what the audit log says about an operation, the latest first."""
    found = await operator.audit.query(AuditFilter(bulk_id=operation_id), page_size=SHOWN)
    return [views.audit_row(row, operator.sight) for row in found.rows]


def sampler(operation_id: str) -> Callable[[Operator], Awaitable[Mapping[str, str]]]:
    async def sample(operator: Operator) -> Mapping[str, str]:
        shown, now = await look(operator, operation_id), await operator.health.now()
        latest = await rows(operator, operation_id)
        return {
            "#progress": render("regions/progress.html", operator, shown=shown, now=now),
            "#again": render("regions/again.html", operator, shown=shown, now=now),
            "#rows": render("audit_rows.html", operator, rows=latest, now=now),
        }

    return sample


def list_sampler(_: str) -> Callable[[Operator], Awaitable[Mapping[str, str]]]:
    async def sample(operator: Operator) -> Mapping[str, str]:
        found = await operator.operations.records(limit=50)
        now = await operator.health.now()
        listed = [views.operation(one) for one in found]
        return {"#operations": render("regions/operations.html", operator, operations=listed, now=now)}

    return sample
