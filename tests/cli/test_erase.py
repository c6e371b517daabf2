"""``redrive erase`` and ``audit verify``, as somebody types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

APP = """
from redrive import App, Context, Fail
app = App("sqlite:///erase.db")

@app.task("SEND", max_attempts=1)
async def send(ctx: Context, to: str) -> None:
    raise Fail("TASK_PRECONDITION_FAILED", f"no such user {to}")
"""


def test_from_the_dry_run_to_the_verdict(redrive: Callable[..., Any], here: Path, start: Callable[..., Any]) -> None:
    (here / "people.py").write_text(APP)
    common = ("--app", "people:app")
    redrive("enqueue", *common, "SEND", '{"to": "ann@example"}', "--scope", "user:ann")
    redrive("work", *common, "--stop-when-empty")
    said = redrive("erase", *common, "--scope", "user:ann", "--dry-run")
    assert said.code == 0 and "1  dead letters" in said.out and "are not covered" in said.out
    assert "nothing was done" in said.out and "a second operator has to agree" in said.out
    asked = json.loads(redrive("erase", *common, "--scope", "user:ann", "--by", "ann", "--yes", "--json").out)
    refused = redrive("approvals", "approve", asked["approval"]["id"], *common, "--by", "ann")
    assert refused.code == 1
    assert redrive("approvals", "approve", asked["approval"]["id"], *common, "--by", "bob").code == 0
    redrive("work", *common, "--stop-when-empty")
    assert redrive("erase", *common, "--scope", "user:ann", "--dry-run").out.startswith("nothing is known about it\n")
    verdict = redrive("audit", "verify", *common)
    assert verdict.code == 0 and "ann erased personal data" in verdict.out and "no tampering was found" in verdict.out
    assert "ann@example" not in redrive("list", *common, "--json").out


def test_refused(redrive: Callable[..., Any], here: Path) -> None:
    (here / "people.py").write_text(APP)
    redrive("migrate", "--app", "people:app")
    assert redrive("erase", "--app", "people:app").code == 2
    assert redrive("erase", "--app", "people:app", "--scope", "a", "--task", "b").code == 2
    assert redrive("erase", "--app", "people:app", "--task", "b", "--yes").code in (1, 2)
