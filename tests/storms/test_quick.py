"""The quick set of ``./dev storm``, faster still: the books must balance after each storm. Rates and delays are left to
the real thing."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from storm.pace import FAST
from storm.scenario import Scenario
from storm.scenarios import ALL
from storm.stage import Stage
from storm.verdict import Result

from tests import cluster

# Storms beside storms would only disturb each other: one after the other, in one process of the test run.
pytestmark = [pytest.mark.storms, pytest.mark.xdist_group("storms"), pytest.mark.timeout(300)]
# Kin of others that are here; a full run has them, and so has ./dev storm.
KIN = {
    *("idle", "idle-fleet", "idle-connections", "repeatable-readers", "network-slow", "burst", "backends-terminated"),
    *("kill-one", "kill-repeatedly", "dead-3-of-4", "sqlite-poison"),
    *("sqlite-disk-full", "sqlite-lock-held"),  # tests/faults/test_sqlite.py has them as well
}
# One of each sort, in every run; the others are for CI.
ALWAYS = {"kill-everything", "postgres-restarts", "network-cut", "sqlite-power-cut"}


def marks_of(scenario: type[Scenario]) -> list[pytest.MarkDecorator]:
    if scenario.name in KIN:
        return [pytest.mark.repeats]
    return [] if scenario.name in ALWAYS else [pytest.mark.thorough]


QUICK = [pytest.param(one, marks=marks_of(one), id=one.name) for one in ALL if not one.full_only]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    directory = cluster.run_directory() / f"storms-{uuid4().hex[:6]}"
    directory.mkdir(mode=0o755)
    made = Stage(FAST, 1, directory)
    yield made
    made.close()


@pytest.mark.parametrize("scenario", QUICK)
def test_the_books_balance(stage: Stage, scenario: type[Scenario]) -> None:
    assert not complaints(scenario(stage).run())


def complaints(result: Result) -> list[str]:
    """Nothing is asked here that the command does not ask. A producer that was killed may have left tasks that nobody
    acknowledged: they are done as well, and not counted against anyone."""
    assert result.verdicts, f"{result.name} asked nothing"
    return [f"{result.name}: {v.what}: {v.detail}" for v in result.verdicts if not v.holds]
