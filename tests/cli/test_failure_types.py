"""``redrive failed --types``: totals, trend and rules by failure type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

RULED = """
from redrive import App, FailureRule

app = App("sqlite:///ruled.db", failure_rules=[
    FailureRule(words=["out of credit"], reason="unpaid", failure_type="param_error", retry=False),
    FailureRule(status=[402, "5xx"], exception="KeyError", reason="shop_down", failure_type="network"),
])


@app.task("PAY")
async def pay(ctx, who: str) -> None:
    raise RuntimeError(f"{who} is out of credit" if who == "ann" else "time-out")
"""


@pytest.fixture
def ruled(here: Path, redrive: Any) -> str:
    (here / "ruled.py").write_text(RULED)
    assert redrive("migrate", "--app", "ruled:app").code == 0
    for who in ("ann", "bob"):
        assert redrive("enqueue", "--app", "ruled:app", "PAY", f'{{"who": "{who}"}}', "--max-attempts", "1").code == 0
    assert redrive("work", "--app", "ruled:app", "--stop-when-empty").code == 0
    return "ruled:app"


def test_types_are_shown_with_their_trend_and_rules(redrive: Any, ruled: str) -> None:
    found = redrive("failed", "--types", "--app", ruled, "--json").json
    counts = {one["type"]: (one["failed"], one["attempts"]) for one in found["types"]}
    assert counts["param_error"] == counts["timeout"] == (1, 1) and counts["network"] == (0, 0)
    assert found["period"] == "24h" and len(found["moments"]) == len(found["types"][0]["trend"]) == 96
    assert [rule["reason"] for rule in found["rules"]] == ["unpaid", "shop_down"]
    said = redrive("failed", "--types", "--period", "1h", "--app", ruled).out
    assert "param_error" in said and "attempts in 1h" in said
    assert "words out of credit" in said and "status 402 or 5xx and exception KeyError" in said
    [task] = redrive("failed", "--failure-type", "param_error", "--app", ruled, "--json").json["items"]
    assert (task["error_reason"], task["attempt_count"]) == ("unpaid", 1)
    assert redrive("failed", "--types", "--url", "sqlite:///ruled.db", "--json").json["rules"] == []


def test_what_does_not_go_together_is_refused(redrive: Any, ruled: str) -> None:
    assert redrive("failed", "--period", "1h", "--app", ruled).code == 2
    assert "alone" in redrive("failed", "--types", "--error-code", "X", "--app", ruled).err
    assert redrive("failed", "--types", "--period", "2h", "--app", ruled).code == 2
    assert redrive("failed", "--types", "--kind", "PAY", "--app", ruled).code == 0
