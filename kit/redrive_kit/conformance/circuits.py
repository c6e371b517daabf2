"""Circuits: an open one keeps its kinds from being claimed, but for one probe at a time."""

from __future__ import annotations

import asyncio

import pytest

from redrive.errors import ChangedMeanwhile
from redrive.kernel.circuit import CircuitRow, SetCircuit
from redrive.kernel.commit import Commit, Target
from redrive.kernel.erase import Erase
from redrive.kernel.outcome import Completed, Released
from redrive.kernel.task import Claimed
from redrive_kit.conformance.harness import Harness

WAIT = 30.0


async def opened(harness: Harness, *kinds: str, wait: float = WAIT) -> CircuitRow:
    """Opens the circuit ``pay`` of these kinds."""
    found = await circuit(harness)
    version = 0 if found is None else found.version
    await harness.control(SetCircuit("pay", version, kinds, True, wait, "connect", "w1", 0, 1))
    row = await circuit(harness)
    assert row is not None
    return row


async def circuit(harness: Harness) -> CircuitRow | None:
    return next(iter(await harness.store.circuits()), None)


async def closed(harness: Harness) -> None:
    row = await circuit(harness)
    assert row is not None
    await harness.control(SetCircuit("pay", row.version, row.kinds, False, None, "back", "w1", 0, row.opened))


def names(claimed: list[Claimed]) -> list[str]:
    return sorted(task.kind for task in claimed)


class TestCircuits:
    async def test_nothing_of_its_kinds_is_claimed_and_others_go_on(self, harness: Harness) -> None:
        await harness.enqueue_many(3, "A")
        await harness.enqueue_many(3, "B")
        free = await harness.enqueue("C")
        await opened(harness, "A", "B")
        await harness.enqueue("A")
        got = await harness.claim(99, store=await harness.another())
        assert [task.id for task in got] == [free]
        assert await harness.claim(9, only="A") == []
        await closed(harness)
        assert names(await harness.claim(99)) == ["A"] * 4 + ["B"] * 3
        await harness.check_totals()

    async def test_one_probe_is_let_through_when_its_time_has_come(self, harness: Harness) -> None:
        await harness.enqueue_many(3, "A")
        await harness.enqueue_many(3, "B")
        await opened(harness, "A", "B")
        await harness.advance(WAIT + 1)
        (probe,) = await harness.claim(99)
        row = await circuit(harness)
        assert row is not None and (row.probe, row.token) == (probe.id, probe.token)
        for store in (harness.store, await harness.another()):
            assert await harness.claim(99, store=store) == []
        await harness.settle(probe, Released())
        assert len(await harness.claim(99)) == 1, "its probe has ended, and nobody said how: another one"

    async def test_the_first_probe_of_kinds_that_share_it_may_be_of_any(self, harness: Harness) -> None:
        await harness.enqueue("B")
        await opened(harness, "A", "B", "C")
        await harness.advance(WAIT + 1)
        assert names(await harness.claim(9)) == ["B"]

    async def test_a_probe_by_hand_waits_for_the_one_that_runs(self, harness: Harness) -> None:
        await harness.enqueue_many(3, "A")
        await opened(harness, "A")
        await harness.advance(WAIT + 1)
        (probe,) = await harness.claim(9)
        await opened(harness, "A", wait=0)
        assert await harness.claim(9) == []
        row = await circuit(harness)
        assert row is not None and row.token == probe.token, "it is still the one that decides"

    async def test_a_fleet_starts_one_probe(self, harness: Harness) -> None:
        await harness.enqueue_many(20, "A")
        await opened(harness, "A")
        await harness.advance(WAIT + 1)
        stores = [await harness.another() for _ in range(4)]
        found = await asyncio.gather(*(harness.claim(3, store=store) for store in stores for _ in range(3)))
        assert sum(map(len, found)) == 1

    async def test_a_probe_whose_lease_ran_out_makes_room_for_another(self, harness: Harness) -> None:
        await harness.enqueue_many(2, "A", max_attempts=9)
        await opened(harness, "A")
        await harness.advance(WAIT + 1)
        (probe,) = await harness.claim(9)
        await harness.advance(3600)
        assert await harness.recover() == {probe.id}
        assert len(await harness.claim(9)) == 1

    async def test_a_failed_probe_waits_anew_and_keeps_since(self, harness: Harness) -> None:
        await harness.enqueue_many(2, "A")
        await opened(harness, "A")
        await harness.advance(WAIT + 1)
        (probe,) = await harness.claim(9)
        row = await circuit(harness)
        assert row is not None
        again = await opened(harness, "A", wait=WAIT * 2)
        assert (again.since, again.token, again.version) == (row.since, None, row.version + 1)
        assert again.probe == probe.id, "the last one that tried"
        await harness.settle(probe, Released())
        await harness.advance(WAIT + 1)
        assert await harness.claim(9) == []
        await harness.advance(WAIT)
        assert len(await harness.claim(9)) == 1

    async def test_a_change_of_one_that_was_changed_meanwhile_is_refused(self, harness: Harness) -> None:
        row = await opened(harness, "A")
        await closed(harness)
        for version in (0, row.version):
            with pytest.raises(ChangedMeanwhile):
                await harness.control(SetCircuit("pay", version, ("A",), True, WAIT, "connect", "w2", 0, 2))
        await harness.enqueue("A")
        assert len(await harness.claim(9)) == 1

    async def test_a_kind_that_leaves_it_runs_and_one_that_joins_waits(self, harness: Harness) -> None:
        await harness.enqueue("A")
        await harness.enqueue("B")
        row = await opened(harness, "A")
        await harness.control(SetCircuit("pay", row.version, ("B",), True, None, row.reason, row.actor, 0, 1))
        assert names(await harness.claim(9)) == ["A"]
        after = await circuit(harness)
        assert after is not None and after.until == row.until

    async def test_a_pause_is_another_thing(self, harness: Harness) -> None:
        await harness.enqueue("A")
        await opened(harness, "A")
        await harness.hold(Target.KIND, "A")
        await harness.advance(WAIT + 1)
        assert await harness.claim(9) == [], "also a probe waits for the end of a pause"
        await closed(harness)
        assert await harness.claim(9) == []
        await harness.hold(Target.KIND, "A", on=False)
        assert len(await harness.claim(9)) == 1

    async def test_limits_hold_beside_it(self, harness: Harness) -> None:
        await harness.limit("A", concurrency=5)
        await harness.enqueue_many(9, "A")
        await opened(harness, "A")
        assert await harness.claim(9) == []
        await harness.advance(WAIT + 1)
        (probe,) = await harness.claim(9)
        await harness.settle(probe, Completed())
        await closed(harness)
        assert len(await harness.claim(9)) == 5

    async def test_a_tick_says_when_the_probe_is_due(self, harness: Harness) -> None:
        await opened(harness, "A")
        due = (await harness.tick()).next_due
        assert due is not None and 0 < due <= WAIT

    async def test_a_reason_that_names_somebody_is_erased(self, harness: Harness) -> None:
        await opened(harness, "A")
        applied = await harness.store.apply(Commit(erase=Erase(tombstone="erased:1", scope="connect")))
        row = await circuit(harness)
        assert row is not None and (row.reason, applied.erased) == ("erased", {"reasons": 1})

    async def test_a_large_backlog_behind_it_costs_nothing(self, harness: Harness) -> None:
        await harness.enqueue_many(50, "A")
        await opened(harness, "A")
        await harness.claim(9)
        async with harness.measure(harness.store) as few:
            await harness.claim(9)
        await harness.enqueue_many(2000, "A")
        await harness.claim(9)
        async with harness.measure(harness.store) as many:
            assert await harness.claim(9) == []
        assert many.rows <= few.rows + 50
