"""``redrive show``: one task, as the story of what happened to it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.text import Text

from redrive.cli.support import output
from redrive.cli.support.options import AppName, Json, Url
from redrive.cli.support.session import operate
from redrive.errors import InvalidInput, RedriveError, TaskNotFound
from redrive.kernel.reads import Query
from redrive.kernel.task import MAX_TEXT, Attempt, AuditRow, DeadLetter, State, Task, Timeline
from redrive.kernel.trace import trace_id_of
from redrive.ops import inspect, views
from redrive.ops.operator import Operator
from redrive.ops.operator.tasks import Story
from redrive.ops.views import Sight
from redrive.ops.why import Reason

_FIELDS = (
    "group",
    "scope",
    "trace_id",
    "idempotency_key",
    "timeout",
    "worker_id",
    "lease_expires_at",
    "paused_by",
    "cancel_requested_at",
    "next_attempt_at",
    "progress",
    "memo",
    "error_code",
    "error_reason",
    "failure_type",
    "error_message",
    "error_fingerprint",
    "replay_count",
    "last_replayed_by",
    "last_replayed_reason",
    "execution_ms",
    "erased_at",
)
_FRAME = re.compile(r'^ *File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE)
_NOT_OURS = re.compile(r"site-packages|/lib/python3|redrive/worker/")
_EPOCH = datetime.fromtimestamp(0, UTC)
Event = tuple[datetime, str, str]


def show(
    task: Annotated[str, typer.Argument(metavar="ID", help="The task's id, its beginning, or its trace.")],
    stack: Annotated[bool, typer.Option("--stack", help="With the stacks of failed attempts.")] = False,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """One task: its state, payload and timeline of attempts, dead letters and operators' actions."""

    async def look(own: Operator) -> tuple[Story, Sight]:
        return await story_of(own, task), own.sight

    story, sight = operate(url, app, look, ids=[task])
    found = story.timeline
    if json:
        seen = views.story(found, story.why, sight)
        output.emit(seen | {"task": views.task_row(found.task, sight), "why": why_documents(story, sight)})
        return
    _print_task(story, sight)
    if not stack:
        _print_place(found)
    _print_timeline(found)
    _print_body("payload", found.task.payload)
    _print_body("result", found.task.result)
    if stack:
        _print_stacks(found)


async def story_of(own: Operator, task: str) -> Story:
    """Returns the story of a task that is named by its id, by the beginning of it, or by its trace."""
    try:
        [task_id] = await own.tasks.meant([task])
        return await own.tasks.show(task_id)
    except (TaskNotFound, InvalidInput) as error:
        return await own.tasks.show(await _of_trace(own, task, error))


async def _of_trace(own: Operator, trace: str, missing: RedriveError) -> UUID:
    """Returns the only task of a trace; what looks like an id may be that of one."""
    found = (
        (await own.tasks.list(Query(trace_id=trace_id_of(trace), limit=2))).tasks if 0 < len(trace) <= MAX_TEXT else []
    )
    if len(found) == 1:
        return found[0].id
    if found:
        raise InvalidInput(
            "this is the id of a trace, and there are several tasks of it",
            hint=f"redrive list --trace-id {trace_id_of(trace)}",
        )
    raise missing


def why_documents(story: Story, sight: Sight) -> list[dict[str, Any]]:
    """Returns why a task does not run, with commands as they can be typed here."""
    return [views.reason(one, sight) | {"fix": one.fix and output.suggest(one.fix)} for one in story.why]


def _print_task(story: Story, sight: Sight) -> None:
    found, where, whole = story.timeline, sight.connection, sight.belongs(story.timeline.task)
    task = found.task
    head = Text.assemble(
        (output.clean(task.kind), "bold"), "  ", output.state(task.state), _forgotten(task), f"  {task.id}"
    )
    output.say(head)
    at = "" if where is None else f" on {where}"
    output.say(f"queue {task.queue}{at}, priority {task.priority}, attempt {inspect.attempts_text(found)}")
    output.say(*(f"why: {reason_text(reason)}" for reason in story.why))
    if whole is not None:
        output.say(f"belongs to: {output.clean(whole.label)}")
    for name in _FIELDS:
        cancelled = name == "error_message" and task.state is State.CANCELLED
        value = inspect.cancelled_because(found) if cancelled else getattr(task, name)
        if value not in (None, 0):
            output.say(f"{_label(task, name)}: {_value(name, value)}")


def _forgotten(task: Task) -> str:
    return " (forgotten)" if task.forgotten else ""


def reason_text(reason: Reason) -> str:
    return reason.full + (f"; {output.suggest(reason.fix)}" if reason.fix else "")


def _label(task: Task, name: str) -> str:
    """A cancelled task keeps its reason where a failed one keeps its error."""
    if name == "error_message" and task.state is State.CANCELLED:
        return "forgotten because" if task.forgotten else "cancelled because"
    return name.replace("_", " ")


def _value(name: str, value: Any) -> str:
    if isinstance(value, datetime):
        return f"{output.when(value)} ({output.relative(value)})"
    if name == "progress":
        return output.progress(value)
    if name == "execution_ms":
        return f"{value:.1f}"
    return output.clean(value) if not isinstance(value, dict | list) else output.shorten(value, 200)


def _print_timeline(found: Timeline) -> None:
    task = found.task
    events: list[Event] = [(task.created_at or _EPOCH, "created", "")]
    events += [_attempt(attempt) for attempt in found.attempts]
    events += [_letter(letter) for letter in found.dead_letters]
    events += [_audit(row) for row in found.audit]
    if task.state.value == "running" and task.last_attempt_at is not None:
        number = _numbered(task.attempt_count, task.replay_count)
        events.append((task.last_attempt_at, f"{number} started", f"on {task.worker_id}"))
    if task.finished_at is not None:
        events.append((task.finished_at, task.state.value, inspect.ended_by(found)))
    output.say("")
    rows = [(output.when(at), what, detail) for at, what, detail in sorted(events, key=lambda event: event[0])]
    output.table(["when", "event", "detail"], rows)


def _attempt(attempt: Attempt) -> Event:
    took = "" if attempt.execution_ms is None else f" after {attempt.execution_ms:.0f} ms"
    on = f" on {attempt.worker_id}" if attempt.worker_id else ""
    detail = f"{attempt.code} ({attempt.reason}){took}{on}: {output.shorten(attempt.message, 300)}"
    return attempt.at, f"{_numbered(attempt.attempt, attempt.replay)} failed", detail


def _numbered(attempt: int, replay: int) -> str:
    """Returns which attempt it is: after each retry by an operator they count from one again."""
    return f"attempt {attempt}" + (f" after retry {replay}" if replay else "")


def _letter(letter: DeadLetter) -> Event:
    return letter.dead_at, "dead letter", f"{letter.reason}: {letter.error_code}"


def _audit(row: AuditRow) -> Event:
    why = f": {row.reason}" if row.reason else ""
    return row.at, row.action, f"by {row.actor}{why}"


def _print_body(name: str, value: Any) -> None:
    if value is not None:
        output.say("", Text(name, style="bold"), output.json_text(value))


def _print_place(found: Timeline) -> None:
    """Where the last failure was raised, in the application's own code if it has a part in it. One that was not raised
    has no place, whatever was raised before it."""
    stack = found.attempts[-1].stack if found.attempts else None
    frames = list(_FRAME.finditer(stack or ""))
    if frames and found.task.error_code is not None:
        own = [frame for frame in frames if not _NOT_OURS.search(frame["file"])]
        at = (own or frames)[-1]
        whole = output.suggest(f"redrive show {found.task.id} --stack")
        output.say(
            output.clean(f"raised at: {at['file']}:{at['line']} in {at['function']}") + f"  (all of it: {whole})"
        )


def _print_stacks(found: Timeline) -> None:
    stacks = [(attempt, attempt.stack) for attempt in found.attempts if attempt.stack]
    for attempt, stack in stacks:
        which = f"stack of {_numbered(attempt.attempt, attempt.replay)}, {output.when(attempt.at)}"
        output.say("", Text(which, style="bold"), stack.rstrip())
    if not stacks:
        output.say("", "no stack was kept")
