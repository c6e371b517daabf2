"""``@app.task(history=…)``: what it takes, and what becomes of completed tasks."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import App, Context
from redrive.errors import InvalidInput
from redrive.kernel.machine import Policy


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("1h", 3600.0), ("15m", 900.0), ("90 s", 90.0), ("1.5d", 129_600.0), (60, 60.0), (None, 0.0), (0, 0.0)],
)
def test_times(given: Any, seconds: float) -> None:
    app = App("sqlite:///:memory:")

    @app.task("A", history=given)
    def a(ctx: Context) -> None: ...

    @app.task("B")
    def b(ctx: Context) -> None: ...

    assert a.handler.policy.history == seconds
    assert b.handler.policy.history is None


@pytest.mark.parametrize("given", ["soon", "60", "1 week", -1, True, "", float("nan"), float("inf"), "99999999d"])
def test_what_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInput, match="history of A must be"):
        App("sqlite:///:memory:").task("A", history=given)


def test_the_rest_of_the_policy_is_untouched() -> None:
    assert Policy().history is None
