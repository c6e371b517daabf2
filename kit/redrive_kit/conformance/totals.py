"""Totals: maintained with every transition, and exact."""

from __future__ import annotations

import random

import pytest

from redrive.kernel.failed import FailureFilter
from redrive.kernel.machine import Event
from redrive.kernel.task import Claimed, State
from redrive_kit.conformance.harness import LEASE, TERMINAL, Harness
from redrive_kit.conformance.outcomes import SETTLED


class TestTotals:
    async def test_an_empty_store_counts_nothing(self, harness: Harness) -> None:
        assert await harness.totals() == {}
        await harness.check_totals()

    async def test_totals_are_per_queue_kind_and_state(self, harness: Harness) -> None:
        await harness.enqueue_many(3, "A", queue="q1")
        await harness.enqueue_many(2, "B", queue="q1", delay=60.0)
        await harness.enqueue_many(1, "A", queue="q2")
        await harness.claim(2, queues=("q1",))
        assert await harness.totals() == {
            ("q1", "A", State.QUEUED): 1,
            ("q1", "A", State.RUNNING): 2,
            ("q1", "B", State.DELAYED): 2,
            ("q2", "A", State.QUEUED): 1,
        }

    async def test_folding_changes_no_total(self, harness: Harness) -> None:
        await harness.enqueue_many(5)
        for name in ("complete", "fail", "snooze"):
            await harness.settle(await harness.claim_one(), SETTLED[name][0])
        before = await harness.totals()
        for _ in range(2):
            await harness.store.upkeep("fold")
            assert await harness.totals() == before
        await harness.check_totals()

    @pytest.mark.parametrize("seed", range(3))
    async def test_a_random_walk_stays_exact(self, harness: Harness, seed: int) -> None:
        dice = random.Random(seed)  # noqa: S311
        other = await harness.another()
        await harness.limit("B", concurrency=3)
        running: list[Claimed] = []
        ids = []
        operations = [Event.CANCEL, Event.REDRIVE, Event.PAUSE, Event.RESUME]
        for step in range(60):
            store = dice.choice([harness.store, other])
            match dice.randrange(7):
                case 0 | 1:
                    ids += await harness.enqueue_many(
                        dice.randint(1, 4),
                        dice.choice("AB"),
                        queue=dice.choice(["q1", "q2"]),
                        max_attempts=2,
                        delay=dice.choice([None, 20.0]),
                        group=dice.choice([None, "g"]),
                    )
                case 2 | 3:
                    running += await harness.claim(dice.randint(1, 3), queues=("q1", "q2"), store=store)
                case 4 if running:
                    task = running.pop(dice.randrange(len(running)))
                    await harness.settle(task, dice.choice(list(SETTLED.values()))[0], store=store)
                case 5 if ids:
                    chosen = dice.sample(ids, min(len(ids), 3))
                    await harness.operate(dice.choice(operations), *chosen, store=store)
                case 6:
                    await harness.advance(dice.choice([5, LEASE + 1]))
                    await harness.tick(store=store)
                    await harness.recover(store)
            if step % 7 == 0:
                await store.upkeep("fold")
            await harness.check_totals()
        assert sum((await harness.totals()).values()) == len(ids)

    async def test_dead_letters_are_counted_and_stay_when_their_task_is_retried(self, harness: Harness) -> None:
        for kind in ("A", "A", "B"):
            await harness.enqueue(kind, queue=kind.lower())
            await harness.settle((await harness.claim(1, queues=("a", "b")))[0], TERMINAL)
        [task] = await harness.store.failed(FailureFilter(kind="B"), limit=1)
        await harness.operate(Event.REDRIVE, task.id)
        await harness.settle((await harness.claim(1, queues=("b",)))[0], TERMINAL)
        found = [(count.queue, count.kind, count.n) for count in await harness.store.letter_counts()]
        assert found == [("a", "A", 2), ("b", "B", 2)]
        await harness.store.upkeep("fold")
        await harness.check_totals()
