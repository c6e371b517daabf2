"""A task's story for its page: the timeline as a list and as a picture, and its stacks with the own frames lifted."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from redrive.kernel.task import State, Task
from redrive.ops import views
from redrive.ops.held import is_gated
from redrive.ops.inspect import attempts_text
from redrive.ops.operator.tasks import Story
from redrive.ops.views import Sight, View

WIDTH, HEIGHT = 640, 40
NARROWEST = 3.0  # units of a bar that would be too thin to see
_LIBRARY = re.compile(r'File "[^"]*(?:site-packages|dist-packages|/lib/python\d|<frozen|/redrive/worker/)')
_FRAME = re.compile(r'\s+File "')


@dataclass(slots=True, frozen=True)
class Moment:
    """Something that happened: ``kind`` is its colour."""

    at: datetime
    kind: str
    title: str
    detail: str | None = None
    attempt: View | None = None


@dataclass(slots=True, frozen=True)
class Bar:
    kind: str
    x: float
    width: float
    title: str


@dataclass(slots=True, frozen=True)
class TaskStory:
    task: View
    why: list[View]
    moments: list[Moment]
    bars: list[Bar]
    marks: list[tuple[float, str]]  # operators' actions: where, and what
    span: timedelta
    begin: datetime | None
    commands: dict[str, str] = field(default_factory=dict)
    attempts_text: str = ""


def tell(story: Story, sight: Sight, now: datetime) -> TaskStory:
    """Returns what a task's page shows to somebody with this sight."""
    task, timeline = story.timeline.task, story.timeline
    attempts = [views.attempt(one, sight) for one in timeline.attempts]
    moments = _moments(task, attempts, [views.audit_row(row, sight) for row in timeline.audit])
    begin, end = _ends(task, moments, now)
    place = _placer(begin, end)
    return TaskStory(
        views.task(task, sight),
        [views.reason(one, sight) for one in story.why],
        moments,
        _bars(task, attempts, begin, end, place),
        [(place(one.at), one.title) for one in moments if one.kind == "operator"],
        end - begin,
        begin,
        _commands(task),
        attempts_text(timeline),
    )


def _moments(task: Task, attempts: list[View], rows: list[View]) -> list[Moment]:
    found = []
    if task.created_at is not None:
        found.append(Moment(task.created_at, "queued", "Created", f"in queue {task.queue}"))
    if task.run_at is not None and task.created_at is not None and task.run_at > task.created_at + timedelta(seconds=1):
        found.append(Moment(task.run_at, "delayed", "Due"))
    for one in attempts:
        title = f"Attempt {one['attempt']}{_after(one['replay'])} failed: {one['code']}"
        found.append(Moment(one["at"], "failed", title, _where(one["worker_id"]), one))
    for row in rows:
        who = f"{row['action']} by {row['actor']}"
        found.append(Moment(row["at"], "operator", who, row["reason"]))
    if task.state is State.RUNNING and task.last_attempt_at is not None:
        title = f"Attempt {task.attempt_count} of {task.max_attempts}{_after(task.replay_count)} runs"
        found.append(Moment(task.last_attempt_at, "running", title, _where(task.worker_id)))
    if task.finished_at is not None:
        found.append(Moment(task.finished_at, task.state.value, task.state.value.capitalize()))
    return sorted(found, key=lambda moment: moment.at)


def _where(worker: str | None) -> str | None:
    return None if worker is None else f"on worker {worker}"


def _ends(task: Task, moments: list[Moment], now: datetime) -> tuple[datetime, datetime]:
    begin = min((moment.at for moment in moments), default=now)
    final = task.state in (State.COMPLETED, State.CANCELLED, State.FAILED)
    end = max((moment.at for moment in moments), default=now) if final else now
    return begin, max(end, begin + timedelta(milliseconds=1))


def _placer(begin: datetime, end: datetime) -> Any:
    whole = (end - begin).total_seconds()

    def place(moment: datetime) -> float:
        return round(min(max((moment - begin).total_seconds() / whole, 0.0), 1.0) * (WIDTH - 8) + 4, 1)

    return place


def _after(replay: int) -> str:
    """Returns after which retry by an operator an attempt was: they count from one again after each."""
    return f" after retry {replay}" if replay else ""


def _bars(task: Task, attempts: list[View], begin: datetime, end: datetime, place: Any) -> list[Bar]:
    found = []
    for one in attempts:
        length = timedelta(milliseconds=one["execution_ms"] or 0)
        found.append(
            _bar(
                "failed",
                one["at"] - length,
                one["at"],
                f"attempt {one['attempt']}{_after(one['replay'])}: {one['code']}",
                place,
            )
        )
    if task.state is State.COMPLETED and task.finished_at is not None:
        length = timedelta(milliseconds=task.execution_ms or 0)
        found.append(_bar("completed", task.finished_at - length, task.finished_at, "completed", place))
    if task.state is State.RUNNING and task.last_attempt_at is not None:
        found.append(_bar("running", task.last_attempt_at, end, "runs", place))
    return found


def _bar(kind: str, begin: datetime, end: datetime, title: str, place: Any) -> Bar:
    x = place(begin)
    return Bar(kind, x, round(max(place(end) - x, NARROWEST), 1), title)


def _commands(task: Task) -> dict[str, str]:
    """Returns the same actions for the shell."""
    named = {"show": f"redrive show {task.id}"}
    if task.state in (State.FAILED, State.CANCELLED):
        named["retry"] = f'redrive retry {task.id} --reason "…"'
    if task.state is State.FAILED:
        named["forget"] = f'redrive forget {task.id} --reason "…"'
    if task.state in (State.QUEUED, State.DELAYED) or is_gated(task):
        named["pause"] = f'redrive pause {task.id} --reason "…"'
    if task.state is State.PAUSED and not is_gated(task):
        named["resume"] = f"redrive resume {task.id}"
    if task.state not in (State.COMPLETED, State.CANCELLED, State.FAILED):  # what is failed is given up by forget
        named["cancel"] = f'redrive cancel {task.id} --reason "…"'
    return named


def stack_lines(stack: str) -> list[tuple[bool, str]]:
    """Returns the lines of a stack, each with whether it belongs to a frame of the application itself."""
    found: list[tuple[bool, str]] = []
    own = False
    for line in stack.splitlines():
        if _FRAME.match(line):
            own = _LIBRARY.search(line) is None
        elif not line.startswith(" "):
            own = False
        found.append((own, line))
    return found
