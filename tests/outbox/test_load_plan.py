"""Plans of load: what options, the environment and the usual values make of it; and a load whose target fails."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from redrive.errors import InvalidInput
from redrive_kit.load.plan import LoadPlan, Scenario, plan_of
from redrive_kit.load.runner import LoadFailed, Runner
from redrive_kit.load.targets import Refused

pytestmark = pytest.mark.anyio
ENVIRONMENT = {
    "LOADGEN_SCENARIO": "Mixed",
    "TOTAL_OPS": "7",
    "CONTENT_BYTES": "0",
    "RATE_PER_SEC": "0.5",
    "CONCURRENCY": "3",
    "API_BASE": "http://127.0.0.1:8340/",
}


def test_usual_values_environment_and_options() -> None:
    usual = plan_of({}, {})
    assert (usual.scenario, usual.total, usual.bytes, usual.rate) == (Scenario.CREATE, 3000, 200, 100.0)
    assert (usual.concurrency, usual.api_base) == (20, None)
    assert plan_of({}, {"TOTAL_OPS": "", "API_BASE": ""}) == LoadPlan()
    found = plan_of({}, ENVIRONMENT)
    drives = {"bytes": 0, "concurrency": 3, "api_base": "http://127.0.0.1:8340"}
    assert found == LoadPlan(scenario="mixed", total=7, rate=0.5, **drives)
    assert plan_of({"total": 8, "rate": 0}, ENVIRONMENT) == LoadPlan(scenario="mixed", total=8, rate=0, **drives)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOADGEN_SCENARIO", "drop"),
        ("TOTAL_OPS", "0"),
        ("TOTAL_OPS", "many"),
        ("CONTENT_BYTES", "-1"),
        ("RATE_PER_SEC", "nan"),
        ("RATE_PER_SEC", "-1"),
        ("CONCURRENCY", "0"),
        ("API_BASE", "127.0.0.1:8340"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        plan_of({}, {name: value})


class Faulty:
    """A target that remembers, and fails each so-manieth call."""

    def __init__(self, every: int = 0) -> None:
        self.every, self.calls = every, 0
        self.notes: set[str] = set()
        self.did: Counter[str] = Counter()
        self.busy = self.most = 0

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def create(self, title: str, text: str) -> str:
        await self._call("create")
        self.notes.add(title)
        return title

    async def update(self, note_id: str, text: str) -> None:
        assert note_id in self.notes
        await self._call("update")

    async def delete(self, note_id: str) -> None:
        assert note_id in self.notes
        await self._call("delete")
        self.notes.remove(note_id)

    async def _call(self, op: str) -> None:
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(0)
        self.busy -= 1
        self.calls += 1
        if self.every and self.calls % self.every == 0:
            raise Refused("HTTP 503")
        self.did[op] += 1


async def load(target: Any, **plan: Any) -> Runner:
    runner = Runner(LoadPlan(**{"rate": 0.0, "concurrency": 5, **plan}), target)
    await runner.prepare()
    await runner.run()
    return runner


@pytest.mark.parametrize("scenario", list(Scenario))
async def test_each_scenario_finds_its_notes(scenario: Scenario) -> None:
    target = Faulty()
    runner = await load(target, scenario=scenario, total=200)
    assert not runner.tally.errors and target.most == 5
    needed = {Scenario.DELETE: 200, Scenario.UPDATE: 20}.get(scenario, 0)
    assert runner.tally.prepared == needed
    made = runner.tally.done["create"] + needed
    assert len(target.notes) == made - runner.tally.done["delete"]
    if scenario is not Scenario.MIXED:
        assert runner.tally.done == {scenario: 200}
    else:
        assert min(runner.tally.done[op] for op in ("create", "update", "delete")) > 0


async def test_errors_are_counted_and_the_rest_goes_on() -> None:
    runner = await load(Faulty(every=10), total=100)
    assert (runner.tally.done.total(), runner.tally.errors) == (90, {"HTTP 503": 10})
    told = runner.tally.summary(LoadPlan(total=100), "here")
    assert (told["done"], told["failed"], told["errors"]) == (90, 10, {"HTTP 503": 10})


async def test_what_is_to_be_changed_cannot_be_made() -> None:
    with pytest.raises(LoadFailed, match="delete needs 20 notes"):
        await load(Faulty(every=7), scenario=Scenario.DELETE, total=20)


async def test_stopped_before_the_next_is_due() -> None:
    runner = Runner(LoadPlan(total=100, rate=0.01, concurrency=3), Faulty())
    running = asyncio.create_task(runner.run())
    async with asyncio.timeout(60):
        while not runner.tally.done:
            await asyncio.sleep(0.01)
        runner.stop()
        await running
    assert runner.tally.done.total() == 1 and runner.tally.interrupted
