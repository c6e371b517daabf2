"""What each role sees of each thing; decided here, and nowhere else.

A viewer sees what is safe by construction: labels (kind, queue, group, scope, trace id), states, times, numbers, codes,
the stored summary of a failure, what operators wrote, and the payload fields that the application declares public.
Everything that a task carries or says (payload, result, progress, memo, messages, stacks, keys) needs an operator.
Nothing is looked for and covered: a field that is not named as open is not shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import datetime
from functools import cache
from typing import Annotated, Any
from uuid import UUID

from redrive.kernel.feature import Belongs
from redrive.kernel.operation import Operation, Status, facts
from redrive.kernel.payload import CUT, JsonText, readable
from redrive.kernel.records import Record
from redrive.kernel.task import Attempt, AuditRow, Claimed, DeadLetter, Task, Timeline
from redrive.kernel.wording import counted, percent, sparkline
from redrive.ops import approvals
from redrive.ops.access import Role
from redrive.ops.causes import Cause
from redrive.ops.fields import Closed as Closed
from redrive.ops.fields import Open as Open
from redrive.ops.fields import Seen as Seen
from redrive.ops.fields import Shown as Shown
from redrive.ops.fields import shown_fields as shown_fields
from redrive.ops.operations.consequences import Obstacle, consequence
from redrive.ops.operations.outcome import RetryOutcome
from redrive.ops.why import Reason

LONGEST_PUBLIC = 200
_TASK = re.compile(r"\btask ([0-9a-f]{8}-[0-9a-f-]{27})")  # in a note
APPLICATION = "app"  # who acts in the audit log where the application's own code does


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


@cache
def _always(view: type) -> tuple[tuple[str, bool], ...]:
    """Returns the fields that a view always has, and whether each is open. Those with a default are left out where
    there is nothing to say."""
    optional = {one.name for one in fields(view) if one.default is not MISSING or one.default_factory is not MISSING}
    return tuple((name, isinstance(how, Open)) for name, (_, how) in shown_fields(view).items() if name not in optional)


def _seen(view: type, found: Any, sight: Sight, **more: Any) -> View:
    """Returns what somebody sees of a thing, by the fields that a view declares; ``more`` are values that the thing
    does not have itself."""
    whole = sight.whole
    seen = View(
        {
            name: None if not (opened or whole) else more[name] if name in more else getattr(found, name)
            for name, opened in _always(view)
        }
    )
    cut = [name for name, value in seen.items() if value is CUT]
    if cut:
        seen.update(dict.fromkeys(cut), cut=cut)
    return seen


# -- what is seen of tasks and their failures --------------------------------------------------------------------------

CUT_HELP = "Documents that were left out because they are long; GET …/payload and …/result have them whole."
FOR_OPERATORS = Closed("For operators.")


@dataclass(slots=True, frozen=True)
class BelongsView:
    feature: Seen[str]
    label: Seen[str]
    page: Annotated[str | None, Open("Its page, below the console's address.")]


@dataclass(slots=True, frozen=True)
class TaskView:
    id: Seen[UUID]
    kind: Seen[str]
    queue: Seen[str]
    state: Seen[str]
    payload: Annotated[Any, Closed("For operators; viewers see the fields that are declared public.")]
    priority: Seen[int]
    group: Seen[str | None]
    scope: Seen[str | None]
    trace_id: Seen[str | None]
    idempotency_key: Annotated[str | None, Closed()]
    attempt_count: Seen[int]
    max_attempts: Seen[int]
    timeout: Seen[float | None]
    created_at: Seen[datetime | None]
    run_at: Seen[datetime | None]
    next_attempt_at: Seen[datetime | None]
    last_attempt_at: Seen[datetime | None]
    lease_expires_at: Seen[datetime | None]
    worker_id: Seen[str | None]
    paused_by: Seen[str | None]
    cancel_requested_at: Seen[datetime | None]
    progress: Annotated[Any, Closed("Viewers see numbers.")]
    error_code: Seen[str | None]
    error_reason: Seen[str | None]
    failure_type: Seen[str | None]
    error_message: Annotated[str | None, FOR_OPERATORS]
    error_stack: Annotated[str | None, FOR_OPERATORS]
    error_summary: Annotated[dict[str, Any] | None, Open("What of the failure everybody may see.")]
    error_fingerprint: Seen[str | None]
    dead_reason: Seen[str | None]
    failed_at: Seen[datetime | None]
    replay_count: Seen[int]
    last_replayed_at: Seen[datetime | None]
    last_replayed_by: Seen[str | None]
    last_replayed_reason: Seen[str | None]
    last_replayed_bulk_id: Seen[str | None]
    finished_at: Seen[datetime | None]
    erased_at: Annotated[datetime | None, Open("When what it carried was erased.")]
    forgotten: Annotated[bool, Open("Of a cancelled one: somebody forgot or purged it, as no longer needed.")]
    execution_ms: Seen[float | None]
    result: Annotated[Any, FOR_OPERATORS]
    deduplicated: Seen[bool]
    failed_seq: Annotated[int | None, Closed("Its place in the list of failures.")]
    feature: Annotated[str | None, Closed("That reacts to its end.")]
    join_id: Annotated[UUID | None, Closed("The batch that it is a member of.")]
    connection: Annotated[str, Open("Where it is; left out where there is only one.")] = "default"
    belongs_to: Annotated[BelongsView | None, Open("By its feature; left out where that does not say.")] = None
    cut: Annotated[list[str], Open(CUT_HELP)] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class AttemptView:
    task_id: Seen[UUID]
    attempt: Seen[int]
    replay: Seen[int]
    at: Seen[datetime]
    code: Seen[str]
    reason: Seen[str]
    failure_type: Seen[str]
    message: Annotated[str | None, FOR_OPERATORS]
    stack: Annotated[str | None, FOR_OPERATORS]
    summary: Seen[dict[str, Any] | None]
    fingerprint: Seen[str]
    worker_id: Seen[str | None]
    execution_ms: Seen[float | None]
    peer: Annotated[str | None, Closed("Host and port that it called. For operators.")]
    build: Annotated[str | None, Open("Of the application that ran it: REDRIVE_BUILD, else its version.")]


@dataclass(slots=True, frozen=True)
class DeadLetterView:
    id: Seen[UUID]
    task_id: Seen[UUID]
    dead_at: Seen[datetime]
    reason: Seen[str]
    dead_reason: Annotated[str, Open("The same, by the name that tasks and filters have for it.")]
    kind: Seen[str]
    queue: Seen[str]
    group: Seen[str | None]
    scope: Seen[str | None]
    trace_id: Seen[str | None]
    payload: Annotated[Any, Closed()]
    attempt_count: Seen[int]
    max_attempts: Seen[int]
    replay_count: Seen[int]
    error_code: Seen[str]
    error_reason: Seen[str]
    failure_type: Seen[str]
    error_message: Annotated[str | None, FOR_OPERATORS]
    error_summary: Seen[dict[str, Any] | None]
    error_fingerprint: Seen[str]
    cut: Annotated[list[str], Open(CUT_HELP)] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class AuditView:
    """A row of the audit log; see ``audit_for``."""

    id: Seen[int]
    at: Seen[datetime]
    actor: Seen[str]
    action: Seen[str]
    reason: Seen[str | None]
    task_id: Seen[UUID | None]
    batch_id: Seen[str | None]
    target: Seen[str | None]
    kind: Seen[str | None]
    scope: Seen[str | None]
    trace_id: Seen[str | None]
    before: Seen[Any]
    after: Seen[Any]
    cut: Annotated[list[str], Open("What was left out because it is long; the export has it whole.")] = field(
        default_factory=list
    )


@dataclass(slots=True, frozen=True)
class ReasonView:
    code: Seen[str]
    text: Seen[str]
    fix: Seen[str | None]
    quoted: Annotated[str | None, Closed("Words of the task itself, which end the text for operators.")]


def _failed_now(one: CauseView, _: datetime) -> str:
    return f"{one.failed:,}+" if one.at_least else f"{one.failed:,}"


def _share_of_all(one: CauseView, _: datetime) -> str:
    return percent(one.share)


def bars(trend: list[int]) -> str:
    """Returns failures per hour as a line of bars, with a gap where there were none."""
    return sparkline([n or None for n in trend])


def _trend(one: CauseView, _: datetime) -> str:
    return bars(one.trend)


def _kinds(one: CauseView, _: datetime) -> str:
    return ", ".join(one.kinds)


def _message(one: CauseView, _: datetime) -> str:
    return " ".join((one.message or "").split())[:160]


@dataclass(slots=True, frozen=True)
class CauseView:
    fingerprint: Annotated[str, Open(column="fingerprint")]
    status: Annotated[str, Open(column="status")]
    count: Annotated[int, Open("Failures ever seen.", column="failures ever")]
    failed: Annotated[int, Open("Tasks that are failed by it now.", column="failed now", cell=_failed_now, number=True)]
    share: Annotated[
        float,
        Open("Part of all failed tasks that match, from 0 to 1.", column="of all", cell=_share_of_all, number=True),
    ]
    at_least: Annotated[
        bool, Open("There may be more failed tasks than were counted: filtered by scope, trace or time.")
    ]
    first_seen: Annotated[datetime, Open(column="first")]
    last_seen: Annotated[datetime, Open(column="last")]
    trend: Annotated[
        list[int], Open("Failures per hour over the last 24 hours, the current one last.", column="24 h", cell=_trend)
    ]
    code: Annotated[str, Open(column="code")]
    kinds: Annotated[dict[str, int], Open(column="kinds", cell=_kinds)]
    message: Annotated[str | None, Closed("For operators.", column="message", cell=_message)]
    reason: Seen[str]
    failure_type: Seen[str]
    summary: Seen[dict[str, Any] | None]
    kind: Annotated[str, Open("Of the sample task.")]
    sample_task: Seen[UUID]
    note: Seen[str | None]
    owner: Seen[str | None]
    muted_until: Seen[datetime | None]
    resolved_at: Seen[datetime | None]
    resolved_by: Seen[str | None]


@dataclass(slots=True, frozen=True)
class BreakdownView:
    tasks: Annotated[int, Open("Tasks that are failed by it now and were looked at, those that failed last.")]
    at_least: Annotated[bool, Open("There are more of them.")]
    peer: Annotated[dict[str, int], Open("Hosts and ports that were called. For operators.")]
    scope: Seen[dict[str, int]]
    group: Seen[dict[str, int]]
    build: Annotated[dict[str, int], Open("Of the application: REDRIVE_BUILD, else its version.")]


# -- what is seen of operations ----------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class CanaryView:
    first: Seen[int]
    percent: Seen[float]
    then: Seen[str]
    ids: Seen[list[UUID]]
    passed: Seen[bool]


@dataclass(slots=True, frozen=True)
class FailedByView:
    fingerprint: Seen[str]
    code: Annotated[str | None, Open("Null where the cause is not kept any more.")]
    n: Seen[int]


@dataclass(slots=True, frozen=True)
class RetriedView:
    """Exact, at any size: counted as the tasks move."""

    retried: Seen[int]
    completed: Seen[int]
    failed_again: Seen[int]
    cancelled: Seen[int]
    running: Seen[int]
    waiting: Annotated[int, Open("For a worker, for another attempt, or until they are resumed.")]
    uncounted: Annotated[int, Open("Retried or run by a process of an earlier version, which counted nothing.")]
    retried_since: Annotated[int, Open("Of those that failed again: retried once more by somebody.")]
    causes: Annotated[list[FailedByView], Open("By which they failed again: the ten by which most did.")]
    number_of_causes: Seen[int]
    waits_because: Annotated[str | None, Open("Why one of those that wait does not run; null: it has its turn.")]


@dataclass(slots=True, frozen=True)
class WorkView:
    """What a feature does piece by piece, such as the rebuild of an index."""

    feature: Seen[str]
    subject: Seen[str]
    unit: Annotated[str, Open("What is counted, instead of tasks.")]
    result: Seen[dict[str, Any]]


@dataclass(slots=True, frozen=True)
class SkippedView:
    task_id: Seen[UUID]
    reason: Seen[str]


@dataclass(slots=True, frozen=True)
class ObstacleView:
    code: Annotated[str, Open("paused, circuit or no_worker.")]
    text: Seen[str]
    tasks: Seen[int]
    fix: Annotated[str, Open("The command against it.")]


def _what(one: OperationView, _: datetime) -> str:
    return one.action if one.work is None else f"{one.action} of {one.work.subject}"


def _of(one: OperationView, _: datetime) -> str:
    return str(one.total) if one.total or one.work is None else "-"


def _outcome(one: OperationView, _: datetime) -> str:
    """Returns how it ended; also that others were quicker with some."""
    if one.note or one.status != Status.COMPLETED:
        result = {} if one.work is None else one.work.result
        error = result.get("error") or next(iter(result.get("refused", ())), None)
        return _TASK.sub(r"redrive show \1", ": ".join(str(part) for part in (one.note, error) if part))
    skipped = [f"{one.skipped} skipped"] if one.skipped else []
    gone = one.total - one.done - one.skipped if one.work is None else 0
    return ", ".join([*skipped, *([f"{gone} dealt with by others before"] if gone > 0 else [])])


@dataclass(slots=True, frozen=True)
class OperationView:
    """The same for everybody: labels, numbers, codes, and operators' own words."""

    id: Annotated[str, Open(column="id")]
    action: Annotated[str, Open(column="action", cell=_what)]
    status: Annotated[str, Open(column="status")]
    done: Annotated[int, Open(column="done")]
    total: Annotated[int, Open(column="of", cell=_of, number=True)]
    created_at: Annotated[datetime | None, Open("Null where it was begun this moment.", column="begun")]
    updated_at: Seen[datetime | None]
    actor: Annotated[str, Open(column="by")]
    reason: Seen[str | None]
    note: Annotated[str | None, Open(column="note", cell=_outcome)]
    filter: Seen[dict[str, Any]]
    skipped: Seen[int]
    progress: Seen[float]
    rate: Seen[float | None]
    canary: Seen[CanaryView | None]
    stop_on_return: Seen[bool]
    plan_token: Seen[str | None]
    approval_id: Seen[str | None]
    work: Annotated[WorkView | None, Open("Of an operation of a feature; null where it is about tasks.")]
    erased: Annotated[dict[str, int], Open("Of an erasure: how many went, by place.")]
    fixed: Annotated[str | None, Open("What was fixed before, as its operator said.")]
    idempotent: Annotated[bool | None, Open("May the handlers run twice for one task, as its operator said.")]
    tasks: Annotated[RetriedView | None, Open("Where the tasks of a retry are now. Not in lists.")]


# -- what is seen of approvals -----------------------------------------------------------------------------------------


def answers_text(fixed: str | None, idempotent: bool | None) -> list[str]:
    """Returns what its operator answered before it began, in words."""
    twice = [] if idempotent is None else [f"handlers are {'' if idempotent else 'not '}idempotent"]
    return [*([] if fixed is None else [f"fixed: {fixed}"]), *twice]


def _request_state(one: ApprovalView, now: datetime) -> str:
    return "expired" if one.state == approvals.PENDING and one.expires_at <= now else one.state


def _request_reason(one: ApprovalView, _: datetime) -> str:
    return "; ".join([*filter(None, [one.reason]), *answers_text(one.fixed, one.idempotent)])


@dataclass(slots=True, frozen=True)
class ApprovalView:
    """The same for everybody: whoever decides has to see all of it."""

    id: Annotated[str, Open(column="id")]
    state: Annotated[str, Open(column="state", cell=_request_state)]
    operation_id: Annotated[str | None, Open("What begins with the approval; null of an action of a feature.")]
    operation: Annotated[str | None, Open("The same as `operationId`.")]
    action: Seen[str]
    title: Annotated[str, Open(column="what")]
    filter: Seen[dict[str, Any]]
    total: Annotated[int, Open(column="number")]
    requested_by: Annotated[str, Open(column="asked by")]
    created_at: Annotated[datetime, Open(column="ago")]
    decided_by: Annotated[str | None, Open(column="decided by")]
    needed: Annotated[str, Open(column="because")]
    reason: Annotated[str | None, Open(column="reason", cell=_request_reason)]
    consequence: Annotated[str, Open("What becomes of the tasks, and whether that can be taken back.")]
    feature: Annotated[str | None, Open("Whose action it is, where that is no operation on tasks.")]
    arguments: Annotated[dict[str, Any] | None, Open("And with what it is carried out.")]
    page: Annotated[str | None, Open("Where the console shows what it is about.")]
    fixed: Seen[str | None]
    idempotent: Seen[bool | None]
    expires_at: Seen[datetime]
    decision_reason: Seen[str | None]
    warnings: Annotated[list[ObstacleView], Open("What would keep the tasks from running; while it is pending.")]

    @property
    def warning_lines(self) -> list[str]:
        return [f"warning: {one.text}; {one.fix}" for one in self.warnings]

    @property
    def outcome(self) -> str:
        """What came of the decision."""
        if self.operation is None:
            return (
                f"approved: {self.title}: done" if self.state == approvals.APPROVED else f"{self.state}: {self.title}"
            )
        if self.state != approvals.APPROVED:
            return f"{self.state}: operation {self.operation} is cancelled; nothing was done"
        begins = f"approved: {self.action} of {counted(self.total)} begins"
        return "\n".join([begins, f"watch it with: redrive operations watch {self.operation}", *self.warning_lines])


def task(found: Task, sight: Sight) -> View:
    view = _seen(TaskView, found, sight)
    if not sight.whole:
        view["payload"] = public_part(found.payload, sight.public(found.kind))
        view["progress"] = numbers_of(found.progress)
    if sight.connection is not None:
        view["connection"] = sight.connection
    if (whole := sight.belongs(found)) is not None:
        view["belongs_to"] = View(feature=whole.feature or found.feature, label=whole.label, page=whole.page)
    return view


def task_row(found: Task, sight: Sight) -> View:
    """Returns a task as ``--json`` shows it: also with what its handler and its feature keep for themselves."""
    return View(task(found, sight), memo=found.memo, facts=found.facts)


def story(found: Timeline, why: Iterable[Reason], sight: Sight) -> View:
    """Returns everything that is known of one task."""
    return View(
        task=task(found.task, sight),
        why=[reason(one, sight) for one in why],
        attempts=[attempt(one, sight) for one in found.attempts],
        dead_letters=[dead_letter(one, sight) for one in found.dead_letters],
        audit=[audit_row(one, sight) for one in found.audit],
    )


def dead_letter(found: DeadLetter, sight: Sight) -> View:
    view = _seen(DeadLetterView, found, sight, dead_reason=found.reason)
    if not sight.whole:
        view["payload"] = public_part(found.payload, sight.public(found.kind))
    return view


def attempt(found: Attempt, sight: Sight) -> View:
    return _seen(AttemptView, found, sight)


def reason(found: Reason, sight: Sight) -> View:
    """Returns why a task does not run. What it quotes of the task is for operators."""
    return _seen(ReasonView, found, sight, text=found.full if sight.whole else found.text)


def audit_for(found: AuditRow, sight: Sight) -> AuditRow:
    """Returns what somebody sees of an audit row: labels, states, numbers, and operators' own words, which everybody
    may read; those of the application are for who may act."""
    return found if sight.whole or found.actor != APPLICATION else replace(found, reason=None)


def audit_row(found: AuditRow, sight: Sight) -> View:
    return _seen(AuditView, audit_for(found, sight), sight, batch_id=found.bulk_id)


def cause(found: Cause, sight: Sight) -> View:
    own = ("status", "failed", "share", "at_least", "kinds", "trend", "note", "owner", "muted_until")
    said = {name: getattr(found, name) for name in (*own, "resolved_at", "resolved_by")}
    return _seen(CauseView, found.row, sight, **said)


def operation(kept: Record | Operation, became: RetryOutcome | None = None, sight: Sight = VIEWERS) -> View:
    """Returns an operation, with its times if it is ``kept``; of a feature's work what errors say, which may quote
    documents, only to those who may act. ``became``: of its tasks, where that was looked for."""
    found = kept if isinstance(kept, Operation) else Operation.of(kept)
    record = None if isinstance(kept, Operation) else kept
    work = found.work
    return _seen(
        OperationView,
        found,
        VIEWERS,
        action=found.verb,
        filter=facts(found.which),
        work=None
        if work is None
        else _seen(WorkView, work, sight, result=View(work.result if sight.whole else work.open_result)),
        erased=dict(found.erased),
        progress=_share_done(found),
        plan_token=found.plan,
        approval_id=found.approval,
        stop_on_return=found.retry is not None and found.retry.stop_on_return,
        canary=None if found.canary is None else _seen(CanaryView, found.canary, VIEWERS),
        tasks=None if became is None else _retried(became),
        created_at=record and record.created_at,
        updated_at=record and record.updated_at,
    )


def operation_view(kept: Record, became: RetryOutcome | None, sight: Sight) -> OperationView:
    """Returns the same as what declared methods return."""
    seen = operation(kept, became, sight)
    work = None if seen["work"] is None else WorkView(**seen["work"])
    return OperationView(**{**seen, "work": work})


def _retried(became: RetryOutcome) -> View:
    causes = [View(fingerprint=one.fingerprint, code=one.row and one.row.code, n=one.n) for one in became.causes]
    waits = became.waits and became.waits.text
    return _seen(RetriedView, became, VIEWERS, causes=causes, waits_because=waits)


def approval(record: Record, obstacles: Iterable[Obstacle] = ()) -> ApprovalView:
    """Returns a request for an approval. ``obstacles`` keep its tasks from running."""
    body = record.body
    optional = ("feature", "arguments", "page", "fixed", "idempotent", "decision_reason")
    names = ("operation", "action", "filter", "total", "needed", "requested_by", "reason", "decided_by")
    own: dict[str, Any] = {name: body[name] for name in names} | {name: body.get(name) for name in optional}
    return ApprovalView(
        **own,
        id=record.id,
        state=record.state,
        operation_id=body["operation"],
        title=approvals.title(record),
        consequence=body.get("told") or consequence(body["action"], body["total"]),
        expires_at=approvals.expires_at(record),
        warnings=[ObstacleView(one.code, one.text, one.tasks, one.fix) for one in obstacles],
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


def _share_done(operation: Operation) -> float:
    if operation.status is Status.COMPLETED:
        return 1.0
    if not operation.total:
        return 1.0 if operation.work is None else 0.0  # of a feature's work nobody may know how much there is
    return min((operation.done + operation.skipped) / operation.total, 1.0)
