"""Which ends of its processes a supervisor takes for the last word."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from redrive.worker import supervisor as module
from redrive.worker.supervisor import EXIT_MISUSED, Supervisor, start_child

# Ends as the next line of a file says, and takes that line away.
CHILD = """
import os, pathlib, sys
plan = pathlib.Path(sys.argv[1])
first, *rest = plan.read_text().split()
plan.write_text(" ".join(rest))
os._exit(int(first))
"""


async def ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *codes: int) -> tuple[int, str]:
    """Runs processes that end with these codes, one after the other; returns what the supervisor ends with, and what
    is left of them."""
    monkeypatch.setattr(module, "FIRST_RESTART_DELAY_S", 0.01)
    plan = tmp_path / "plan"
    plan.write_text(" ".join(map(str, codes)))
    watching = Supervisor(["w-1"], lambda _: [sys.executable, "-S", "-c", CHILD, str(plan)])
    [code] = await asyncio.wait_for(watching.run(), 60)
    return code, plan.read_text()


async def test_one_that_was_started_wrongly_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await ends(tmp_path, monkeypatch, EXIT_MISUSED, 0) == (EXIT_MISUSED, "0")


async def test_a_successor_that_was_started_wrongly_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody was writing the configuration when the first one crashed."""
    assert await ends(tmp_path, monkeypatch, 9, EXIT_MISUSED, EXIT_MISUSED, 0) == (0, "")


async def test_a_signal_to_a_child_that_just_ended_leaves_its_exit_code_alone() -> None:
    for _ in range(100):
        child = await start_child(["cat"], "w", 1, None)
        assert child.process.stdin is not None
        child.process.stdin.close()
        while not child.ended.done():
            child.signal(0)
            await asyncio.sleep(0)
        assert child.ended.result() == 0
