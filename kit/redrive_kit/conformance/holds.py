"""Holds: pause and resume a queue, a kind, a group, a task."""

from __future__ import annotations

import asyncio

import pytest

from redrive.kernel.commit import Target
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Completed, Released
from redrive.kernel.task import Claimed, State
from redrive_kit.conformance.harness import Harness


class TestHolds:
    async def test_a_paused_queue_is_not_claimed_from(self, harness: Harness) -> None:
        held = await harness.enqueue_many(2, queue="mail")
        free = await harness.enqueue(queue="default")
        await harness.hold(Target.QUEUE, "mail")
        got = await harness.claim(9, queues=("mail", "default"), store=await harness.another())
        assert [task.id for task in got] == [free]
        await harness.hold(Target.QUEUE, "mail", on=False)
        assert [task.id for task in await harness.claim(9, queues=("mail",))] == held

    async def test_a_paused_kind_does_not_block_others(self, harness: Harness) -> None:
        first = await harness.enqueue("K")
        free = await harness.enqueue("B")
        await harness.hold(Target.KIND, "K")
        later = await harness.enqueue("K")
        assert [task.id for task in await harness.claim(9)] == [free]
        assert await harness.claim(9, only="K") == []
        await harness.hold(Target.KIND, "K", on=False)
        assert [task.id for task in await harness.claim(9)] == [first, later]
        await harness.check_totals()

    async def test_a_paused_group_is_parked_and_comes_back(self, harness: Harness) -> None:
        held = await harness.enqueue_many(3, group="g")
        free = await harness.enqueue(group="other")
        plain = await harness.enqueue()
        await harness.hold(Target.GROUP, "g")
        later = await harness.enqueue(group="g")
        got = await harness.claim(9) + await harness.claim(9)
        assert [task.id for task in got] == [free, plain]
        assert {await harness.state(i) for i in (*held, later)} <= {State.PAUSED, State.QUEUED}
        await harness.check_totals()
        await harness.hold(Target.GROUP, "g", on=False)
        got = await harness.claim(9, store=await harness.another())
        assert {task.id for task in got} == {*held, later}
        await harness.check_totals()

    async def test_a_parked_task_says_why(self, harness: Harness) -> None:
        task_id = await harness.enqueue(group="g")
        await harness.hold(Target.GROUP, "g")
        await harness.claim(9)
        task = await harness.task(task_id)
        assert (task.state, task.paused_by) == (State.PAUSED, "group:g")
        assert task.attempt_count == 0

    async def test_a_group_hold_works_in_lanes_too(self, harness: Harness) -> None:
        await harness.limit("K", concurrency=1)
        await harness.enqueue_many(3, "K", group="g")
        free = await harness.enqueue("K")
        await harness.hold(Target.GROUP, "g")
        got = [task.id for _ in range(4) for task in await harness.claim(1)]
        assert got == [free]
        await harness.check_totals()

    async def test_a_large_group_comes_back_in_pieces(self, harness: Harness) -> None:
        ids = await harness.enqueue_many(2400, group="g")
        await harness.hold(Target.GROUP, "g")
        while await harness.count(State.QUEUED):
            assert await harness.claim(400) == []
        await harness.hold(Target.GROUP, "g", on=False)
        assert await harness.count(State.QUEUED) == 1000  # nobody waited for all of them
        assert (await harness.tick()).next_due == 0
        await harness.hold(Target.GROUP, "g")  # held again half-way: what is still parked stays so
        parked = await harness.count(State.PAUSED)
        await harness.tick()
        assert await harness.count(State.PAUSED) == parked == 400
        await harness.hold(Target.GROUP, "g", on=False)
        while (await harness.tick()).next_due == 0:
            pass
        got: list[Claimed] = []
        while claimed := await harness.claim(1000):
            got += claimed
        assert sorted(task.id for task in got) == sorted(ids)
        await harness.check_totals()

    async def test_a_group_comes_back_in_the_order_it_had(self, harness: Harness) -> None:
        ids = await harness.enqueue_many(30, group="g")
        await harness.hold(Target.GROUP, "g")
        await harness.claim(99)
        await harness.hold(Target.GROUP, "g", on=False)
        assert [task.id for task in await harness.claim(99)] == ids

    @pytest.mark.parametrize("target, name", [(Target.QUEUE, "default"), (Target.KIND, "A"), (Target.GROUP, "g")])
    async def test_running_tasks_finish_and_returning_ones_wait(
        self, harness: Harness, target: Target, name: str
    ) -> None:
        one, two = await harness.enqueue_many(2, group="g")
        first, second = await harness.claim(2)
        await harness.hold(target, name)
        assert await harness.settle(first, Completed())
        assert await harness.settle(second, Released())
        assert await harness.claim(9) == []
        assert await harness.state(one) is State.COMPLETED
        assert (await harness.task(two)).attempt_count == 0
        await harness.hold(target, name, on=False)
        assert [task.id for task in await harness.claim(9)] == [two]

    @pytest.mark.parametrize("target, name", [(Target.QUEUE, "default"), (Target.KIND, "A"), (Target.GROUP, "g")])
    async def test_delayed_tasks_of_a_hold_wait_too(self, harness: Harness, target: Target, name: str) -> None:
        task_id = await harness.enqueue(group="g", delay=10.0)
        await harness.hold(target, name)
        await harness.advance(11)
        await harness.tick()
        assert await harness.claim(9) == []
        await harness.hold(target, name, on=False)
        assert [task.id for task in await harness.claim(9)] == [task_id]

    async def test_holds_are_listed_and_audited_once(self, harness: Harness) -> None:
        assert (await harness.hold(Target.QUEUE, "mail")).repeated == set()
        assert (await harness.hold(Target.QUEUE, "mail")).repeated == {"queue:mail"}
        (row,) = (await harness.store.overview()).holds
        assert (row.target, row.name, row.actor, row.reason) == ("queue", "mail", "ann", "because")
        await harness.hold(Target.QUEUE, "mail", on=False)
        assert (await harness.hold(Target.QUEUE, "mail", on=False)).repeated == {"queue:mail"}
        assert (await harness.store.overview()).holds == []
        audit = await harness.audit()
        assert [(row.action, row.actor, row.target) for row in audit] == [
            ("QUEUE_RESUME", "ann", "queue:mail"),
            ("QUEUE_PAUSE", "ann", "queue:mail"),
        ]

    async def test_nothing_starts_after_a_pause_returned(self, harness: Harness) -> None:
        other = await harness.another()
        for n in range(8):
            queue = f"q{n}"
            await harness.enqueue_many(30, queue=queue)
            await asyncio.gather(
                *(harness.claim(2, queues=(queue,), store=store) for store in (harness.store, other) * 3),
                harness.hold(Target.QUEUE, queue),
            )
            assert await harness.claim(5, queues=(queue,), store=other) == []


class TestTaskHolds:
    async def test_a_paused_task_waits(self, harness: Harness) -> None:
        held, free = await harness.enqueue_many(2)
        assert await harness.operate(Event.PAUSE, held)
        task = await harness.task(held)
        assert (task.state, task.paused_by) == (State.PAUSED, "ann")
        assert [task.id for task in await harness.claim(9)] == [free]
        assert await harness.operate(Event.RESUME, held)
        assert [task.id for task in await harness.claim(9)] == [held]
        await harness.check_totals()

    async def test_a_paused_delayed_task_keeps_its_time(self, harness: Harness) -> None:
        task_id = await harness.enqueue(delay=30.0)
        due = (await harness.task(task_id)).next_attempt_at
        await harness.operate(Event.PAUSE, task_id)
        await harness.operate(Event.RESUME, task_id)
        task = await harness.task(task_id)
        assert (task.state, task.next_attempt_at) == (State.DELAYED, due)

    async def test_a_paused_task_is_not_promoted_and_resumes_at_once_when_due(self, harness: Harness) -> None:
        task_id = await harness.enqueue(delay=30.0)
        await harness.operate(Event.PAUSE, task_id)
        await harness.advance(31)
        assert (await harness.tick()).promoted == 0
        await harness.operate(Event.RESUME, task_id)
        assert [task.id for task in await harness.claim(9)] == [task_id]

    async def test_resuming_a_group_leaves_a_task_paused_by_hand(self, harness: Harness) -> None:
        by_hand, by_group = await harness.enqueue_many(2, group="g")
        await harness.operate(Event.PAUSE, by_hand)
        await harness.hold(Target.GROUP, "g")
        await harness.claim(9)
        await harness.hold(Target.GROUP, "g", on=False)
        assert [task.id for task in await harness.claim(9)] == [by_group]
        assert await harness.state(by_hand) is State.PAUSED

    async def test_pause_needs_a_waiting_task_and_resume_a_paused_one(self, harness: Harness) -> None:
        running = (await harness.running()).id
        failed = await harness.failed(queue="q")
        assert not await harness.operate(Event.PAUSE, running)
        assert not await harness.operate(Event.PAUSE, failed)
        assert not await harness.operate(Event.RESUME, running)
        assert await harness.audit() == []

    async def test_pause_against_claim_one_wins(self, harness: Harness) -> None:
        other = await harness.another()
        for _ in range(10):
            task_id = await harness.enqueue()
            claimed, paused = await asyncio.gather(harness.claim(1), harness.operate(Event.PAUSE, task_id, store=other))
            assert await harness.state(task_id) is (State.PAUSED if paused else State.RUNNING)
            assert paused or len(claimed) == 1
            if claimed:
                await harness.settle(claimed[0], Completed())
        await harness.check_totals()
