"""Figures: what the fleet is measured by, by one statement, whatever the backlog. Totals: maintained with every
transition, and exact."""

from __future__ import annotations

import asyncio
import random

import pytest

from redrive.kernel.commit import Commit, Hold, Target
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Completed
from redrive.kernel.records import Put
from redrive.kernel.task import Claimed, State
from redrive_kit.conformance.harness import LEASE, SETTLED, TERMINAL, Harness


class TestFigures:
    async def test_an_empty_store_has_none(self, harness: Harness) -> None:
        figures = await harness.store.figures()
        assert (figures.kinds, figures.oldest, figures.workers, figures.operations) == ([], {}, [], {})
        assert (figures.causes, figures.expired, figures.unsealed, figures.late_schedules) == (0, 0, 0, 0)

    async def test_enqueued_only_grows(self, harness: Harness) -> None:
        await harness.enqueue_many(3, "A", queue="q")
        seen = []
        for step in range(4):
            if step == 1:
                await harness.settle(await harness.claim_one(queues=("q",)), Completed())
            if step == 2:
                claimed = await harness.claim_one(queues=("q",))
                await harness.settle(claimed, TERMINAL)
                await harness.operate(Event.REDRIVE, claimed.id)
            if step == 3:
                given_up = await harness.cancelled("A", queue="q")
                await harness.operate(Event.REDRIVE, given_up)
                await harness.store.upkeep("fold")
            [kind] = (await harness.store.figures()).kinds
            assert (kind.queue, kind.kind) == ("q", "A")
            seen.append(kind.enqueued)
        assert seen == [3, 3, 3, 4]
        assert kind.states[State.COMPLETED] == 1
        assert kind.states[State.QUEUED] == 3
        assert kind.dead_letters == 1

    async def test_what_is_failed_by_code_and_type(self, harness: Harness) -> None:
        await harness.failed()
        await harness.failed("B")
        for _ in range(2):
            figures = await harness.store.figures()
            assert sum(figures.failed_by_code.values()) == 2
            assert sum(figures.failed_by_type.values()) == 2
            await harness.store.upkeep("fold")
        assert figures.causes > 0

    async def test_ages_and_leases(self, harness: Harness) -> None:
        await harness.enqueue("A", queue="q1")
        await harness.running("B", queue="q2")
        await harness.advance(LEASE + 1)
        await harness.enqueue("B", queue="q1")
        figures = await harness.store.figures()
        assert figures.expired == 1
        assert figures.oldest.keys() == {("q1", "A"), ("q1", "B")}
        assert figures.oldest["q1", "A"] > LEASE > figures.oldest["q1", "B"] >= 0

    async def test_workers_pauses_and_documents(self, harness: Harness) -> None:
        await harness.tick("w1", running=2)
        await harness.store.apply(
            Commit(
                controls=[Hold(Target.QUEUE, "default", on=True, actor="ann")],
                puts=[
                    Put("operation", "1", {}, state="running"),
                    Put("operation", "2", {}, state="completed"),
                    Put("approval", "1", {}, state="pending"),
                ],
            )
        )
        figures = await harness.store.figures()
        [worker] = figures.workers
        assert (worker.id, worker.queues, worker.concurrency, worker.running) == ("w1", ("default",), 4, 2)
        assert abs((worker.seen_at - figures.now).total_seconds()) < 5
        assert (figures.paused_queues, figures.operations, figures.approvals) == (["default"], {"running": 1}, 1)
        assert figures.unsealed >= 1

    async def test_a_seal_that_somebody_has_rewritten_is_no_reason_to_fail(self, harness: Harness) -> None:
        for number, last in enumerate((10**30, 2.5, -1, None, "x", [1])):
            await harness.store.apply(Commit(puts=[Put("audit-seal", str(number), {"last": last})]))
            assert (await harness.store.figures()).unsealed >= 0

    async def test_they_cost_one_statement_and_no_backlog(self, harness: Harness) -> None:
        costs = []
        for _ in range(2):
            for state in (State.QUEUED, State.FAILED, State.RUNNING):
                await harness.stock(3_000, state, kind="A")
            await harness.store.upkeep("fold")
            await harness.store.figures()  # prepared, and its catalogs read
            async with harness.measure(harness.store) as cost:
                await harness.store.figures()
            costs.append(cost)
        first, second = costs
        assert len(first.statements) == len(second.statements) == 1
        assert second.rows <= 1.1 * first.rows, (first.rows, second.rows)


class TestOverdue:
    async def test_those_that_could_run_and_have_waited_too_long(self, harness: Harness) -> None:
        await harness.enqueue_many(3, "A", queue="q")
        await harness.enqueue("B", queue="q", priority=-5)
        await harness.enqueue("A", queue="other")
        await harness.enqueue("A", queue="q", delay=3600)
        await harness.advance(400)
        await harness.enqueue("A", queue="q")
        store = harness.store
        assert await store.overdue({"q": 300.0, "nothing": 1.0}) == {"q": 4}
        assert await store.overdue({"q": 300.0, "other": 500.0}, ["A"]) == {"q": 1}
        assert await store.overdue({"q": 500.0}) == await store.overdue({}) == {}

    async def test_as_many_are_counted_as_are_asked_for(self, harness: Harness) -> None:
        await harness.enqueue_many(1_200, "A", queue="q")
        await harness.enqueue_many(1_300, "B", queue="q")
        await harness.advance(400)
        await harness.enqueue_many(500, "A", queue="q")
        store = harness.store
        assert await store.overdue({"q": 300.0}, most={"q": 2_499}) == {"q": 2_499}
        assert await store.overdue({"q": 300.0}, most={"q": 3_000}) == {"q": 2_500}
        assert await store.overdue({"q": 300.0}, ["B"], {"q": 3_000}) == {"q": 1_200}

    async def test_no_more_than_a_thousand_are_looked_at(self, harness: Harness) -> None:
        costs = []
        for _ in range(2):
            await harness.stock(3_000, State.QUEUED, kind="A")
            await harness.advance(400)
            costs.append(await self.least_rows(harness))
        assert costs[1] <= 1.5 * costs[0], costs  # twice as much if it looked at all

    async def least_rows(self, harness: Harness) -> int:
        """Returns how many rows it visits at best: versions of rows that the clock's move left behind count too, as
        long as something else in the database may still see them."""
        found = []
        for _ in range(8):
            async with harness.measure(harness.store) as cost:
                assert await harness.store.overdue({"default": 300.0}) == {"default": 1_000}
            found.append(cost.rows)
            await asyncio.sleep(0.1)
        return min(found)

    async def test_documents_of_alerts_come_with_the_figures(self, harness: Harness) -> None:
        put = [Put("alert", "book", {"at": None}), Put("alert", "silence:x", {"rule": "x"}, state="silence", keep=60)]
        await harness.store.apply(Commit(puts=put, controls=[Hold(Target.KIND, "A", on=True, actor="ann")]))
        figures = await harness.store.figures()
        assert figures.alerts == {"book": (1, {"at": None}), "silence:x": (1, {"rule": "x"})}
        assert figures.paused_kinds == ["A"] and figures.paused_queues == []
        await harness.advance(61)
        assert figures.alerts.keys() - (await harness.store.figures()).alerts.keys() == {"silence:x"}


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
