"""Turns what ``ops`` returns into what goes over the wire. What each role sees is decided in ``redrive.ops.views``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from redrive.api import models as m
from redrive.kernel.diagnosis import Finding
from redrive.kernel.records import Record
from redrive.kernel.task import AuditRow, DeadLetter, Task
from redrive.ops import views
from redrive.ops.causes import Cause
from redrive.ops.operator import Operator
from redrive.ops.operator.tasks import Story
from redrive.ops.views import View

# Lists are made while they are written, one thing at a time.


def with_earlier_names(view: View) -> View:
    """Returns what is seen of a task, a dead letter or an audit row, also by the names of the earlier system."""
    view["episode_id"], view["job_kind"] = view["scope"], view["kind"]
    return view


def task(found: Task, operator: Operator) -> View:
    return with_earlier_names(views.task(found, operator.sight))


def tasks(found: Sequence[Task], operator: Operator) -> Iterator[View]:
    return (task(one, operator) for one in found)


def letters(found: Sequence[DeadLetter], operator: Operator) -> Iterator[View]:
    return (with_earlier_names(views.dead_letter(one, operator.sight)) for one in found)


def story(found: Story, operator: Operator) -> View:
    seen = views.story(found.timeline, found.why, operator.sight)
    for one in (seen["task"], *seen["dead_letters"], *seen["audit"]):
        with_earlier_names(one)
    return seen


def audits(found: Sequence[AuditRow], operator: Operator) -> Iterator[View]:
    return (with_earlier_names(views.audit_row(row, operator.sight)) for row in found)


def causes(found: Sequence[Cause], operator: Operator) -> Iterator[View]:
    return (views.cause(one, operator.sight) for one in found)


def operations(found: Sequence[Record], operator: Operator) -> Iterator[View]:
    return (views.operation(record, sight=operator.sight) for record in found)


def skipped(found: Mapping[UUID, str]) -> list[View]:
    return [View(task_id=task_id, reason=why) for task_id, why in found.items()]


def finding(found: Finding, operator: Operator, connection: str | None) -> m.FindingOut:
    """Returns it with what it quotes of a task only for those who may see tasks whole, and with the connection that it
    is about if there are several."""
    text = found.full if operator.sight.whole else found.text
    what, name = found.about or (None, None)
    where = {} if connection is None else {"connection": connection}
    return m.FindingOut(level=found.level, code=found.code, text=text, fix=found.fix, about=what, name=name, **where)
