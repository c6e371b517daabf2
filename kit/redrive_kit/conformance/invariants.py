"""The eight invariants of the design, each by name. The other files of this suite look at them from closer up."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

import pytest

from redrive.errors import ChangedMeanwhile, InvalidInput
from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.feature import Need
from redrive.kernel.ledger import Posting
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Completed, Released, Snooze
from redrive.kernel.ports.reads import get_task
from redrive.kernel.ports.store import Query, Store
from redrive.kernel.records import Put
from redrive.kernel.task import State
from redrive_kit.conformance.harness import LEASE, RETRY_AT_ONCE, SETTLED, Harness, failing, operator_move


class TestInvariants:
    async def test_invariant_1_no_acknowledged_task_is_lost(self, harness: Harness) -> None:
        """Two workers that settle at random, forget half of what they hold and are recovered; all is accounted for."""
        other = await harness.another()
        dice = random.Random(1)  # noqa: S311
        ids = await harness.enqueue_many(60, max_attempts=4)

        async def work(store: Store, worker: str) -> None:
            for _ in range(8):
                for claimed in await harness.claim(5, worker=worker, store=store):
                    if dice.random() < 0.6:
                        await harness.settle(claimed, dice.choice(list(SETTLED.values()))[0], store=store)

        for _ in range(4):
            await asyncio.gather(work(harness.store, "w1"), work(other, "w2"))
            await harness.advance(LEASE + 1)
            await harness.tick()
            await asyncio.gather(harness.recover(), harness.recover(other))
        assert sorted(await harness.store.get_many(ids)) == sorted(ids)
        if harness.reads:
            found = await harness.store.find(Query(limit=1000))
            assert sorted(task.id for task in found) == sorted(ids)
            for task in found:
                assert await get_task(harness.store, task.id) == task
        assert sum((await harness.tally()).values()) == len(ids)
        await harness.check_totals()

    async def test_invariant_2_a_lease_token_commits_at_most_once_and_only_while_current(
        self, harness: Harness
    ) -> None:
        other = await harness.another()
        claimed = await harness.running()
        for outcome, _ in SETTLED.values():
            landed = await asyncio.gather(
                harness.settle(claimed, outcome),
                harness.settle(claimed, outcome, store=other),
                harness.settle(claimed, Completed(), store=other),
            )
            assert sum(landed) == 1
            assert not await harness.renew(claimed, progress={claimed.id: "1"})
            if await harness.state(claimed.id) not in (State.FAILED, State.CANCELLED, State.COMPLETED):
                await harness.advance(60)
                await harness.tick()
            elif not await harness.operate(Event.REDRIVE, claimed.id):
                await harness.enqueue()
            stale, claimed = claimed, await harness.claim_one()
            assert not await harness.settle(stale, outcome)
            assert await harness.state(claimed.id) is State.RUNNING

    async def test_invariant_3_attempts_never_exceed_their_maximum(self, harness: Harness) -> None:
        task_id = await harness.enqueue(max_attempts=2)
        for outcome in (Snooze(0), Released(), Snooze(0), Released(), RETRY_AT_ONCE, Released(), Snooze(0)):
            claimed = await harness.claim_one()
            assert claimed.attempt <= 2
            await harness.settle(claimed, outcome)
        task = await harness.task(task_id)
        assert (task.state, task.attempt_count) == (State.QUEUED, 1)
        await harness.claim_one()
        await harness.advance(LEASE + 1)
        await harness.recover()
        task = await harness.task(task_id)
        assert (task.state, task.attempt_count) == (State.FAILED, 2)
        await harness.operate(Event.REDRIVE, task_id)
        assert (await harness.claim_one()).attempt == 1

    @pytest.mark.parametrize("event", [Event.REDRIVE, Event.CANCEL, Event.PAUSE])
    async def test_invariant_4_an_operators_action_and_its_audit_row_are_one(
        self, harness: Harness, event: Event
    ) -> None:
        task_id = await harness.failed() if event is Event.REDRIVE else await harness.enqueue()
        before = await harness.store.timeline(task_id)
        refused = Put("plan", "p1", {}, version=7)
        with pytest.raises(ChangedMeanwhile):
            await harness.store.apply(Commit(transitions=[operator_move(event, task_id)], puts=[refused]))
        assert await harness.store.timeline(task_id) == before
        assert await harness.operate(event, task_id)
        timeline = await harness.store.timeline(task_id)
        assert timeline is not None and timeline.task.state is not (before and before.task.state)
        assert len(timeline.audit) == 1

    async def test_invariant_5_the_ledger_adds_up_and_a_batch_settles_once(self, harness: Harness) -> None:
        harness.needs(Need.LEDGER)
        other = await harness.another()
        accounts = ["alice", "bob", "revenue", "system:world"]
        await harness.store.apply(Commit(postings=[Posting("g", (("system:world", -50), ("alice", 50)))]))
        dice = random.Random(5)  # noqa: S311

        async def move(n: int, store: Store) -> None:
            amount, (here, there) = dice.randint(1, 30), dice.sample(accounts[:3], 2)
            with suppress(InvalidInput):
                await store.apply(Commit(postings=[Posting(f"p{n // 2}", ((here, -amount), (there, amount)))]))

        for start in range(0, 40, 8):
            await asyncio.gather(*(move(n, (harness.store, other)[n % 2]) for n in range(start, start + 8)))
            balances = {name: await harness.store.sql.balance(name) for name in accounts}
            assert sum(balances.values()) == 0
            assert all(balances[name] >= 0 for name in accounts[:3])

        claimed = await harness.running()
        settling = Commit(
            transitions=[harness.decide(claimed, Completed())],
            postings=[Posting("batch-1", (("system:world", -7), ("bob", 7)))],
        )
        before = await harness.store.sql.balance("bob")
        await asyncio.gather(harness.store.apply(settling), other.apply(settling), harness.store.apply(settling))
        assert await harness.store.sql.balance("bob") == before + 7

    @pytest.mark.parametrize("skew", [timedelta(days=-3), timedelta(hours=1), timedelta(days=3)], ids=str)
    async def test_invariant_6_no_clock_but_the_stores_decides(self, harness: Harness, skew: timedelta) -> None:
        """A producer whose clock is wrong makes ids from another time. Its tasks run, end and are found like others."""
        now = (await harness.store.overview()).now
        skewed = UUID(int=new_id().int + (int(skew.total_seconds() * 1000) << 80))
        await harness.enqueue(id=skewed, delay=30.0)
        due = (await harness.task(skewed)).next_attempt_at
        assert due is not None and timedelta(seconds=29) < due - now < timedelta(seconds=60)
        assert await harness.claim(1) == []
        await harness.advance(31)
        await harness.tick()
        claimed = await harness.claim_one(lease=10.0)
        await harness.advance(11)
        assert await harness.recover() == {skewed}
        claimed = await harness.claim_one()
        assert claimed.id == skewed
        assert await harness.settle(claimed, Completed())
        assert await harness.state(skewed) is State.COMPLETED
        if harness.reads:
            assert [task.id for task in await harness.store.find(Query())] == [skewed]

    async def test_invariant_7_a_claim_costs_what_it_takes_not_the_backlog(self, harness: Harness) -> None:
        """See ``TestCost`` for every hot verb and more rows."""
        costs = []
        for backlog in (0, 5_000, 20_000):
            for kind, state in (("A", State.QUEUED), ("B", State.DELAYED), ("C", State.FAILED), ("D", State.COMPLETED)):
                if backlog:
                    await harness.stock(backlog, state, kind=kind, queue="backlog")
            await harness.enqueue_many(20, queue="hot")
            await harness.claim(5, queues=("hot",))
            async with harness.measure(harness.store) as cost:
                claimed = await harness.claim(5, queues=("hot",))
                await harness.settle_many([(t, Completed() if n % 2 else failing()) for n, t in enumerate(claimed)])
            assert len(claimed) == 5 and cost.scans == []
            costs.append(cost.rows)
            while rest := await harness.claim(50, queues=("hot",)):
                await harness.settle_many([(task, Completed()) for task in rest])
        assert max(costs) <= 2 * costs[0] + 50, costs

    async def test_invariant_8_totals_are_exact_and_nobody_counts_rows(self, harness: Harness) -> None:
        costs = []
        for backlog in (10, 10_000):
            for kind, state in (("A", State.QUEUED), ("B", State.FAILED), ("C", State.COMPLETED)):
                await harness.stock(backlog, state, kind=kind)
            await harness.store.upkeep("fold")
            async with harness.measure(harness.store) as cost:
                await harness.store.counts()
            await harness.check_totals()
            assert cost.scans == []
            costs.append(cost.rows)
        assert costs[1] <= 2 * costs[0] + 50, costs
