"""What each role sees is said field by field: nothing is shown because nobody thought of it."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest

from redrive.ids import new_id
from redrive.kernel.operation import Operation
from redrive.kernel.payload import CUT, JsonText
from redrive.kernel.ports.store import CauseRow
from redrive.kernel.task import Attempt, AuditRow, DeadLetter, State, Task, Timeline
from redrive.ops import inspect, views
from redrive.ops.access import Role
from redrive.ops.views import Sight, public_part

VIEWER, OPERATOR = Sight(Role.VIEWER, lambda kind: ("order",)), Sight(Role.OPERATOR)


def names(kind: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


@pytest.mark.parametrize(
    ("kind", "view", "shown_to_nobody"),
    [
        (Task, views.TaskView, ("lease_token", "memo", "facts")),
        (Attempt, views.AttemptView, ()),
        (DeadLetter, views.DeadLetterView, ()),
        (CauseRow, views.CauseView, ()),
        (AuditRow, views.AuditView, ("bulk_id", "salt", "erased")),
        (Operation, views.OperationView, ("approval", "driver", "last_piece", "version", "what", "which")),
    ],
)
def test_every_field_was_decided_about(kind: Any, view: Any, shown_to_nobody: tuple[str, ...]) -> None:
    shown = set(views.shown_fields(view))
    assert shown | set(shown_to_nobody) >= names(kind), "a new field: open, closed or shown to nobody?"
    assert not shown & set(shown_to_nobody)


def make(**values: Any) -> Task:
    return Task(id=new_id(), kind="PAY", queue="default", state=State.FAILED, **values)


def test_a_viewer_sees_public_fields_only() -> None:
    payload = {"order": 17, "card": "4111"}
    for given in (payload, JsonText('{"order":17,"card":"4111"}')):
        assert views.task(make(payload=given), VIEWER)["payload"] == {"order": 17}
    assert views.task(make(payload=payload), OPERATOR)["payload"] == payload


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        ({"order": "x" * 200}, {"order": "x" * 200}),
        ({"order": "x" * 201}, None),
        ({"order": {"card": "4111"}}, None),
        ({"order": None, "b": 1}, {"order": None}),
        ({"order": 10**30}, None),
        ("order", None),
        (CUT, None),
        (JsonText("{broken"), None),
    ],
)
def test_public_values_are_short_and_simple(payload: Any, shown: Any) -> None:
    assert public_part(payload, ("order",)) == shown


def test_what_was_left_out_is_said() -> None:
    view = views.task(make(payload=CUT, error_stack=CUT), OPERATOR)
    assert (view["payload"], view["error_stack"], view["cut"]) == (None, None, ["payload", "error_stack"])
    assert "cut" not in views.task(make(payload=CUT), VIEWER), "nor what others could have seen"


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        (40, 40),
        (JsonText("40"), 40),
        (JsonText('"4111"'), None),
        (10**16, None),
        (JsonText('{"done":3,"total":10,"note":"card 4111"}'), {"done": 3, "total": 10}),
        ({"note": "x"}, None),
        ([4111], None),
    ],
)
def test_progress_is_a_number_to_viewers(progress: Any, shown: Any) -> None:
    assert views.task(make(progress=progress), VIEWER)["progress"] == shown


def test_words_of_the_application_in_the_audit_log_are_for_operators() -> None:
    for actor, shown in (("app", None), ("ann", "card 4111")):
        row = AuditRow(1, datetime(2026, 11, 16, tzinfo=UTC), actor, "TASK_RETRY", "card 4111", *[None] * 5)
        assert views.audit_row(row, VIEWER)["reason"] == shown
        assert views.audit_row(row, OPERATOR)["reason"] == "card 4111"


def test_attempts_that_were_lost_are_told_in_words() -> None:
    """Each allows another: three of thirteen is no mistake of whoever wrote ten."""
    task = Task(new_id(), "SEND", "default", State.QUEUED, attempt_count=3, max_attempts=13)
    now = datetime(2026, 11, 16, tzinfo=UTC)
    lost = Attempt(task.id, 3, now, "C", "lease_expired", "timeout", "m", None, "f", "w", None)
    assert inspect.attempts_text(Timeline(task)) == "3 of 13"
    words = "3, of 13 at most: one whose worker is lost does not count, and allows another"
    assert inspect.attempts_text(Timeline(task, [lost])) == words
    task.replay_count = 1
    assert inspect.attempts_text(Timeline(task, [lost])) == "3 of 13", "that was before somebody retried it"
