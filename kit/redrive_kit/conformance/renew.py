"""Renew: heartbeats keep a lease, and carry progress."""

from __future__ import annotations

from redrive.kernel.outcome import Completed
from redrive.kernel.task import State
from redrive_kit.conformance.harness import Harness


class TestRenew:
    async def test_a_renewed_lease_is_not_recovered(self, harness: Harness) -> None:
        await harness.enqueue()
        claimed = await harness.claim_one(lease=10.0)
        for _ in range(3):
            await harness.advance(8)
            assert await harness.renew(claimed, 10.0)
            assert await harness.recover() == set()
        await harness.advance(11)
        assert await harness.recover() == {claimed.id}

    async def test_a_late_heartbeat_keeps_the_lease_while_nobody_took_it(self, harness: Harness) -> None:
        await harness.enqueue()
        claimed = await harness.claim_one(lease=10.0)
        await harness.advance(60)
        assert await harness.renew(claimed, 10.0)
        assert await harness.recover() == set()
        assert await harness.settle(claimed, Completed())

    async def test_renewing_many_answers_only_what_is_lost(self, harness: Harness) -> None:
        await harness.enqueue_many(5)
        claimed = await harness.claim(5)
        await harness.settle(claimed[1], Completed())
        await harness.ask_to_cancel(claimed[2].id)
        leases = [(task.id, task.token) for task in claimed]
        leases[3] = (claimed[3].id, claimed[0].id)
        progress = {task.id: f'{{"n":{n}}}' for n, task in enumerate(claimed)}
        assert await harness.store.renew(leases, 60.0, progress) == {claimed[1].id, claimed[3].id}
        assert [(await harness.task(task.id)).progress for task in claimed] == [
            {"n": 0},
            None,
            {"n": 2},
            None,
            {"n": 4},
        ]

    async def test_progress_without_news_stays(self, harness: Harness) -> None:
        claimed = await harness.running()
        await harness.renew(claimed, progress={claimed.id: '{"done":3,"of":7}'})
        await harness.renew(claimed)
        assert (await harness.task(claimed.id)).progress == {"done": 3, "of": 7}

    async def test_nothing_to_renew(self, harness: Harness) -> None:
        assert await harness.store.renew([], 60.0, {}) == set()

    async def test_renewing_changes_no_total(self, harness: Harness) -> None:
        claimed = await harness.running()
        await harness.renew(claimed)
        assert await harness.totals() == {("default", "A", State.RUNNING): 1}
        await harness.check_totals()
