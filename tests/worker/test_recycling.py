"""When a worker has lived long enough."""

from __future__ import annotations

import pytest

from redrive.settings import Options
from redrive.worker import recycling
from redrive.worker.memory import memory_in_use
from redrive.worker.recycling import MEGABYTE, ProcessLimits, without_limits


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(recycling.time, "monotonic", lambda: now[0])
    return now


def begun(**options: float) -> ProcessLimits:
    found = ProcessLimits(Options(**options))
    found.begin()
    return found


def test_by_time(clock: list[float]) -> None:
    found = begun(max_time=10)
    assert (found.next_look, found.reached()) == (110.0, None)
    clock[0] = 110.0
    assert found.reached() == "it has run for 10 s"


def test_by_tasks(clock: list[float]) -> None:
    found = begun(max_jobs=5)
    assert (found.reached(4), found.reached(5)) == (None, "it has run 5 tasks")


def test_by_memory_which_is_looked_at_once_a_second(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    found = begun(max_memory=50, max_time=1000)
    assert found.next_look == 101.0
    monkeypatch.setattr(recycling, "memory_in_use", lambda: 51 * MEGABYTE)
    assert found.reached() == "it holds 51 MB of memory, more than 50"
    assert MEGABYTE < memory_in_use() < 10_000 * MEGABYTE


def test_without_limits_nothing_is_looked_at(clock: list[float]) -> None:
    found = begun()
    clock[0] = 1e9
    assert (found.next_look, found.reached(10**9)) == (float("inf"), None)


def test_those_that_begin_together_do_not_end_together() -> None:
    ends = set()
    for _ in range(50):
        found = ProcessLimits(Options(max_time=1000), spread=0.2)
        ends.add(found._time)
    assert len(ends) > 40 and all(800 <= one <= 1000 for one in ends), "never later than asked for"


def test_a_child_leaves_its_limits_to_its_supervisor() -> None:
    given = Options(max_time=1, max_jobs=2, max_memory=3, tries=4)
    left = without_limits(given)
    assert (left.max_time, left.max_jobs, left.max_memory, left.tries) == (None, None, None, 4)
