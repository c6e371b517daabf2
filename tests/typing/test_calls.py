"""A type checker and the running program agree on which calls of ``enqueue`` are right."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from redrive.errors import InvalidInput

CALLS = Path(__file__).with_name("calls.py")
ROOT = Path(__file__).parents[2]
MARK = re.compile(r"# E: (\S+)")


@pytest.mark.thorough
def test_mypy_refuses_wrong_calls_and_no_others() -> None:
    wanted = {
        number: found[1]
        for number, line in enumerate(CALLS.read_text().splitlines(), start=1)
        if (found := MARK.search(line))
    }
    # In a process of its own, or what it holds in memory would stay until the end of the run; with the settings of
    # ./dev check, whose results it finds in the cache.
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--no-pretty", str(CALLS)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not said.stderr
    errors = re.findall(r"calls\.py:(\d+): error: .*\[([a-z-]+)\]$", said.stdout, re.MULTILINE)
    assert {int(number): code for number, code in errors} == wanted, said.stdout


@pytest.mark.parametrize("test", ["wrong_name", "wrong_type", "missing", "too_many"])
def test_the_running_program_agrees(test: str) -> None:
    """Each line by itself: the calls that mypy refuses are refused, with one exception (a dict for a model, which
    is validated)."""
    from tests.typing import calls

    body = CALLS.read_text().split(f"def {test}(")[1].split("\n\n\n")[0].splitlines()[1:]
    for line in body:
        code = MARK.sub("", line).strip()
        if "order.enqueue" in code:
            continue
        with pytest.raises(InvalidInput):
            _run(code, vars(calls) | {"now": datetime.now(UTC)})


def _run(code: str, names: dict[str, Any]) -> None:
    if not code.startswith("await "):
        exec(code, names)
        return
    made: dict[str, Any] = {}
    exec(f"async def call():\n    {code}", names, made)
    asyncio.run(made["call"]())
