"""A fast subset of ``./dev storm``: the books must balance after each. Rates and delays are left to the real thing."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from storm.pace import FAST
from storm.scenarios import BY_NAME
from storm.stage import Stage
from storm.verdict import Result

from tests import cluster

# Storms beside storms would only disturb each other: one test for all of a store, one after the other.
pytestmark = [pytest.mark.storms, pytest.mark.xdist_group("storms"), pytest.mark.timeout(300)]
SUBSETS = {
    "postgres": [
        "postgres-restarts",
        "backends-terminated",
        "kill-everything",
        "network-half-open",
        "postgres-disk-full",
    ],
    "sqlite": ["sqlite-kill-any", "sqlite-power-cut", "sqlite-disk-full"],
}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    directory = cluster.run_directory() / f"storms-{uuid4().hex[:6]}"
    directory.mkdir(mode=0o755)
    made = Stage(FAST, 1, directory)
    yield made
    made.close()


@pytest.mark.parametrize("store", SUBSETS)
def test_the_books_balance(stage: Stage, store: str) -> None:
    results = [BY_NAME[name](stage).run() for name in SUBSETS[store]]
    assert not [line for result in results for line in complaints(result)]


def complaints(result: Result) -> list[str]:
    broken = [f"{result.name}: {v.what}: {v.detail}" for v in result.verdicts if not v.holds]
    account = result.account
    if account is None or not account.acknowledged == account.states.get("completed", 0) > 0:
        broken.append(f"{result.name}: not every acknowledged task is completed: {account}")
    return broken
