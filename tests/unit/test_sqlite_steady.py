"""The machine's clock is set, forward or back: nothing runs twice, nothing is removed, nothing waits for that date."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.kernel.outcome import Completed, Snooze
from redrive.kernel.retention import DEFAULTS
from redrive.kernel.task import State
from redrive.stores.sqlite.steady import since_boot
from redrive.stores.sqlite.store import SqliteStore
from redrive_kit.conformance.harness import LEASE, failing
from tests.conformance.harness_sqlite import SqliteHarness

HOUR, DAY = 3600.0, 86_400.0
FAR = 400 * DAY


class Machine:
    """A clock that can be set, and a time since boot that nobody sets."""

    def __init__(self) -> None:
        self.now, self.up, self.boot = 1_800_000_000.0, 5_000.0, "first"

    def passes(self, seconds: float) -> None:
        self.now, self.up = self.now + seconds, self.up + seconds

    def is_set(self, seconds: float) -> None:
        self.now += seconds

    def reboots(self, off: float) -> None:
        self.now, self.up, self.boot = self.now + off, 10.0, "second"

    def runs(self, store: Any) -> None:
        store.clock = lambda: self.now
        store.since_boot = lambda: (self.boot, self.up)


class Steady(SqliteHarness):
    machine: Machine

    async def advance(self, seconds: float) -> None:
        self.machine.passes(seconds)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
async def harness(tmp_path: Path, machine: Machine) -> AsyncIterator[Steady]:
    harness = Steady(tmp_path / "redrive.db")
    harness.machine = machine
    machine.runs(harness.store)
    await harness.store.open()
    await harness.tick()
    yield harness
    await harness.close()


async def held(harness: Steady, name: str = "prune") -> bool:
    """Whether the duty is left out now."""
    return name not in (await harness.tick(**{name: 0.0})).duties


@pytest.mark.parametrize("step", [FAR, -3700.0])
async def test_a_lease_keeps_what_was_left_of_it(harness: Steady, machine: Machine, step: float) -> None:
    other = SqliteStore(harness.store.url)
    machine.runs(other)
    claimed = await harness.running()
    machine.passes(LEASE - 10)
    machine.is_set(step)
    assert await harness.recover() == set()
    assert await other.expired(10) == [] and await harness.state(claimed.id) is State.RUNNING
    machine.is_set(-step)
    await harness.tick()
    assert await harness.store.expired(10) == []
    machine.passes(11)
    assert await harness.recover() == {claimed.id}
    await other.close()


async def test_two_processes_shift_once(harness: Steady, machine: Machine) -> None:
    claimed = await harness.running()
    other = SqliteStore(harness.store.url)
    machine.runs(other)
    await other.upkeep("recount")
    before = (await harness.task(claimed.id)).lease_expires_at
    machine.is_set(3700)
    for store in (harness.store, other, harness.store, other):
        await store.upkeep("recount")
    after = (await harness.task(claimed.id)).lease_expires_at
    assert before is not None and after == before + timedelta(seconds=3700)
    await other.close()


async def test_a_claim_under_the_wrong_clock_is_not_recovered_years_later(harness: Steady, machine: Machine) -> None:
    machine.is_set(FAR)
    claimed = await harness.running()
    machine.is_set(-FAR)
    await harness.tick()
    machine.passes(LEASE + 1)
    assert await harness.recover() == {claimed.id}


async def test_waits_go_on(harness: Steady, machine: Machine) -> None:
    """Of retries and snoozed tasks by what was left; of tasks that were made while the clock was ahead, too."""
    retried, snoozed = await harness.running(), await harness.running()
    await harness.settle(retried, failing())
    machine.is_set(FAR)
    await harness.settle(snoozed, Snooze(20))
    made = await harness.enqueue("B", delay=20.0)
    planned = await harness.enqueue("C", run_at=(await harness.store.now()) + timedelta(days=1))
    machine.is_set(-FAR)
    await harness.tick()
    for task_id in (retried.id, snoozed.id, made):
        due = (await harness.task(task_id)).next_attempt_at
        assert due is not None and due - await harness.store.now() < timedelta(minutes=10)
    due = (await harness.task(planned)).next_attempt_at
    assert due is not None and due - await harness.store.now() == timedelta(days=1)


async def test_a_planned_time_stays(harness: Steady, machine: Machine) -> None:
    at = await harness.store.now() + timedelta(days=2)
    planned = await harness.enqueue(run_at=at)
    machine.is_set(DAY)
    await harness.tick()
    assert (await harness.task(planned)).next_attempt_at == at


@pytest.mark.parametrize("back", [False, True], ids=["it stays", "it comes back"])
async def test_nothing_is_removed_for_hours(harness: Steady, machine: Machine, back: bool) -> None:
    done = await harness.running(idempotency_key="order-17")
    await harness.settle(done, Completed())
    machine.is_set(FAR)
    assert await harness.store.upkeep("prune", DEFAULTS) == 0
    for duty in ("prune", "audit", "failed", "approvals"):
        assert await held(harness, duty), duty
    assert not await held(harness, "seal")
    if back:
        machine.passes(60)
        machine.is_set(-FAR)
        await harness.tick()
    machine.passes(5 * HOUR)
    assert await held(harness) and await harness.store.upkeep("prune", DEFAULTS) == 0
    assert await harness.enqueue(idempotency_key="order-17") == done.id
    machine.passes(2 * HOUR)
    assert not await held(harness)
    assert (await harness.store.upkeep("prune", DEFAULTS) == 0) == back


@pytest.mark.parametrize(
    "happens, waits",
    [
        (lambda m: m.passes(FAR), False),
        (lambda m: m.is_set(60), False),
        (lambda m: m.reboots(12 * HOUR), False),
        (lambda m: m.reboots(FAR), True),
        (lambda m: m.reboots(-DAY), True),
    ],
    ids=["time passes", "a small step", "a night", "off for a year", "back in time"],
)
async def test_what_makes_it_wait(
    harness: Steady, machine: Machine, happens: Callable[[Machine], None], waits: bool
) -> None:
    happens(machine)
    assert await held(harness) == waits


async def test_without_a_step_nothing_is_written(harness: Steady, machine: Machine) -> None:
    rows = await harness.sql("select * from redrive_clock")
    for _ in range(50):
        machine.passes(60)
        machine.is_set(0.01)
        await harness.store.upkeep("recount")
    assert await harness.sql("select * from redrive_clock") == rows
    for _ in range(100):  # corrected little by little: no step, however far it leads
        machine.is_set(0.4)
        await harness.store.upkeep("recount")
    claimed = await harness.running()
    before = (await harness.task(claimed.id)).lease_expires_at
    await harness.store.upkeep("recount")
    assert (await harness.task(claimed.id)).lease_expires_at == before
    assert not await held(harness)


def test_the_machine_says_how_long_it_is_up() -> None:
    found = since_boot()
    assert found is None or (len(found[0]) == 36 and found[1] > 0)
