"""What each role sees of each thing; decided here, and nowhere else.

A viewer sees what is safe by construction: labels (kind, queue, group, scope, trace id), states, times, numbers, codes,
the stored summary of a failure, what operators wrote, and the payload fields that the application declares public.
Everything that a task carries or says (payload, result, progress, memo, messages, stacks, keys) needs an operator.
Nothing is looked for and covered: a field that is not named as open is not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from redrive.kernel.feature import Belongs
from redrive.kernel.operation import Operation, Status, facts
from redrive.kernel.payload import CUT, JsonText, readable
from redrive.kernel.records import Record
from redrive.kernel.task import Attempt, AuditRow, Claimed, DeadLetter, Task
from redrive.ops import approvals
from redrive.ops.access import Role
from redrive.ops.audit_rows import outside
from redrive.ops.causes import Cause
from redrive.ops.operations.consequences import Obstacle, consequence
from redrive.ops.operations.outcome import RetryOutcome
from redrive.ops.why import Reason

LONGEST_PUBLIC = 200
APPLICATION = "app"  # who acts in the audit log where the application's own code does

TASK_OPEN = (
    "id",
    "kind",
    "queue",
    "state",
    "priority",
    "group",
    "scope",
    "trace_id",
    "attempt_count",
    "max_attempts",
    "timeout",
    "created_at",
    "run_at",
    "next_attempt_at",
    "last_attempt_at",
    "lease_expires_at",
    "worker_id",
    "paused_by",
    "cancel_requested_at",
    "error_code",
    "error_reason",
    "failure_type",
    "error_fingerprint",
    "error_summary",
    "dead_reason",
    "failed_at",
    "replay_count",
    "last_replayed_at",
    "last_replayed_by",
    "last_replayed_reason",
    "last_replayed_bulk_id",
    "finished_at",
    "execution_ms",
    "erased_at",
    "forgotten",
    "deduplicated",
)
TASK_CLOSED = ("payload", "progress", "result", "error_message", "error_stack", "idempotency_key")
TASK_INTERNAL = ("lease_token", "memo", "failed_seq", "feature", "facts", "join_id")  # shown to nobody over HTTP
ATTEMPT_OPEN = (
    "attempt",
    "replay",
    "at",
    "code",
    "reason",
    "failure_type",
    "fingerprint",
    "worker_id",
    "execution_ms",
    "summary",
    "build",
)
ATTEMPT_CLOSED = ("message", "stack", "peer")
LETTER_OPEN = (
    "id",
    "task_id",
    "dead_at",
    "reason",
    "kind",
    "queue",
    "group",
    "scope",
    "trace_id",
    "attempt_count",
    "max_attempts",
    "replay_count",
    "error_code",
    "error_reason",
    "failure_type",
    "error_fingerprint",
    "error_summary",
)
LETTER_CLOSED = ("payload", "error_message")
AUDIT_OPEN = (
    "id",
    "at",
    "actor",
    "action",
    "reason",
    "task_id",
    "bulk_id",
    "target",
    "kind",
    "scope",
    "trace_id",
    "before",
    "after",
)
CAUSE_OPEN = (
    "fingerprint",
    "count",
    "code",
    "reason",
    "failure_type",
    "first_seen",
    "last_seen",
    "sample_task",
    "summary",
)
CAUSE_CLOSED = ("message",)
OPERATION_OPEN = (
    "id",
    "action",
    "status",
    "actor",
    "reason",
    "total",
    "done",
    "skipped",
    "rate",
    "note",
    "fixed",
    "idempotent",
)


class View(dict[str, Any]):
    """What somebody sees of one thing. Names are ours; values may be ``JsonText``."""


@dataclass(slots=True, frozen=True)
class Sight:
    """What a caller may see: by role, and by which payload fields of a kind everybody may see; and where it is."""

    role: Role
    public: Callable[[str], Collection[str]] = lambda _: ()
    connection: str | None = None  # where the tasks are, if there are several places
    belongs: Callable[[Task], Belongs | None] = lambda _: None  # what a task belongs to, by its feature

    @property
    def whole(self) -> bool:
        return self.role >= Role.OPERATOR


VIEWERS = Sight(Role.VIEWER)


def task(found: Task, sight: Sight) -> View:
    view = _view(found, TASK_OPEN, TASK_CLOSED, sight)
    if not sight.whole:
        view["payload"] = public_part(found.payload, sight.public(found.kind))
        view["progress"] = numbers_of(found.progress)
    if sight.connection is not None:
        view["connection"] = sight.connection
    if (whole := sight.belongs(found)) is not None:
        view["belongs_to"] = View(feature=whole.feature or found.feature, label=whole.label, page=whole.page)
    return view


def dead_letter(found: DeadLetter, sight: Sight) -> View:
    view = _view(found, LETTER_OPEN, LETTER_CLOSED, sight)
    view["dead_reason"] = found.reason  # as tasks and filters call it
    if not sight.whole:
        view["payload"] = public_part(found.payload, sight.public(found.kind))
    return view


def attempt(found: Attempt, sight: Sight) -> View:
    return _view(found, ATTEMPT_OPEN, ATTEMPT_CLOSED, sight)


def reason(found: Reason, sight: Sight) -> View:
    """Returns why a task does not run. What it quotes of the task is for operators."""
    return View(code=found.code, text=found.full if sight.whole else found.text, fix=found.fix)


def audit_for(found: AuditRow, sight: Sight) -> AuditRow:
    """Returns what somebody sees of an audit row: labels, states, numbers, and operators' own words, which everybody
    may read; those of the application are for who may act."""
    return found if sight.whole or found.actor != APPLICATION else replace(found, reason=None)


def audit_row(found: AuditRow, sight: Sight) -> View:
    view = _view(audit_for(found, sight), AUDIT_OPEN, (), sight)
    return View({outside(name): value for name, value in view.items()})


def cause(found: Cause, sight: Sight) -> View:
    view = _view(found.row, CAUSE_OPEN, CAUSE_CLOSED, sight)
    said = (
        "status",
        "failed",
        "share",
        "at_least",
        "kinds",
        "trend",
        "note",
        "owner",
        "muted_until",
        "resolved_at",
        "resolved_by",
    )
    view.update({name: getattr(found, name) for name in said})
    return view


def operation(record: Record, became: RetryOutcome | None = None, sight: Sight = VIEWERS) -> View:
    """Returns an operation, the same for everybody: labels, numbers, codes, and operators' own words; of a feature's
    work what errors say, which may quote documents, only to those who may act. ``became``: of its tasks, where that was
    looked for."""
    found = Operation.of(record)
    view = _view(found, OPERATION_OPEN, (), Sight(Role.VIEWER))
    canary = found.canary
    view.update(
        action=found.verb,
        filter=facts(found.which),
        work=None
        if found.work is None
        else View(
            feature=found.work.feature,
            subject=found.work.subject,
            unit=found.work.unit,
            result=View(found.work.result if sight.whole else found.work.open_result),
        ),
        erased=dict(found.erased),
        progress=_share_done(found),
        plan_token=found.plan,
        approval_id=found.approval,
        stop_on_return=found.retry is not None and found.retry.stop_on_return,
        canary=None
        if canary is None
        else View(
            first=canary.first,
            percent=canary.percent,
            then=canary.then,
            ids=list(canary.ids),
            passed=canary.passed,
        ),
        tasks=None if became is None else _retried(became),
        created_at=record.created_at,
        updated_at=record.updated_at,
    )
    return view


def _retried(became: RetryOutcome) -> View:
    causes = [View(fingerprint=one.fingerprint, code=one.row and one.row.code, n=one.n) for one in became.causes]
    return View(
        became.numbers,
        causes=causes,
        number_of_causes=became.number_of_causes,
        waits_because=became.waits and became.waits.text,
    )


def approval(record: Record, obstacles: Iterable[Obstacle] = ()) -> View:
    """Returns an approval, the same for everybody, too: whoever decides has to see all of it."""
    body = record.body
    names = ("action", "filter", "total", "needed", "requested_by", "reason", "decided_by")
    return View(
        {name: body[name] for name in names},
        id=record.id,
        state=record.state,
        operation_id=body["operation"],
        title=approvals.title(record),
        consequence=body.get("told") or consequence(body["action"], body["total"]),
        feature=body.get("feature"),
        arguments=body.get("arguments"),
        page=body.get("page"),
        fixed=body.get("fixed"),
        idempotent=body.get("idempotent"),
        decision_reason=body.get("decision_reason"),
        expires_at=approvals.expires_at(record),
        warnings=[View(one.document) for one in obstacles],
        created_at=record.created_at,
    )


def claimed(found: Claimed) -> View:
    """Returns a claimed task for whoever runs it: everything that running needs."""
    names = ("id", "kind", "queue", "attempt", "max_attempts", "scope", "trace_id")
    payload = None if found.payload is None else JsonText(found.payload)
    told = {name: getattr(found, name) for name in names}
    return View(told, traceparent=found.trace_parent, lease_token=found.token, payload=payload)


def public_part(payload: Any, names: Collection[str]) -> dict[str, Any] | None:
    """Returns the fields that were declared public, as far as they are short and simple; None when there are none."""
    if not names or payload is None or payload is CUT:
        return None
    value = readable(payload) if isinstance(payload, JsonText) else payload
    if not isinstance(value, dict):
        return None
    return {name: value[name] for name in names if name in value and _is_short(value[name])} or None


def _is_short(value: Any) -> bool:
    """False for lists, objects and long texts: under a public name they may hold anything."""
    if isinstance(value, str):
        return len(value) <= LONGEST_PUBLIC
    return value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 10**18)


def numbers_of(progress: Any) -> Any:
    """Returns the progress of a task: a number, or ``done`` and ``total`` where they are numbers; a note is the
    handler's words."""
    value = readable(progress) if isinstance(progress, JsonText) else progress
    if isinstance(value, dict):
        return {name: value[name] for name in ("done", "total") if _is_number(value.get(name))} or None
    return value if _is_number(value) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 10**15


def _view(found: Any, opened: Iterable[str], closed: Iterable[str], sight: Sight) -> View:
    view = View({name: getattr(found, name) for name in opened})
    for name in closed:
        view[name] = getattr(found, name) if sight.whole else None
    cut = [name for name, value in view.items() if value is CUT]
    if cut:
        view.update(dict.fromkeys(cut), cut=cut)
    return view


def _share_done(operation: Operation) -> float:
    if operation.status is Status.COMPLETED:
        return 1.0
    if not operation.total:
        return 1.0 if operation.work is None else 0.0  # of a feature's work nobody may know how much there is
    return min((operation.done + operation.skipped) / operation.total, 1.0)
