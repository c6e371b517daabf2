"""Limits: exact across the fleet, and free again on every way out of running."""

from __future__ import annotations

import asyncio
import random

from redrive.kernel.commit import Commit, Limit
from redrive.kernel.outcome import Completed, Released
from redrive.kernel.ports.store import LimitRow
from redrive.kernel.task import Claimed, State
from redrive_kit.conformance.harness import LEASE, SETTLED, Harness


async def limit_of(harness: Harness, kind: str) -> LimitRow:
    (row,) = [row for row in (await harness.store.overview()).limits if row.kind == kind]
    return row


class TestLimits:
    async def test_a_quota_is_kept(self, harness: Harness) -> None:
        await harness.limit("K", concurrency=2)
        await harness.enqueue_many(5, "K")
        claimed = await harness.claim(5)
        assert len(claimed) == 2
        assert await harness.claim(5, store=await harness.another()) == []
        cycle = await harness.settle_many([(claimed[0], Completed())], harness.want(5))
        assert len(cycle.claimed) == 1
        assert (await limit_of(harness, "K")).running == 2

    async def test_a_saturated_kind_does_not_block_others(self, harness: Harness) -> None:
        await harness.limit("K", concurrency=1)
        await harness.enqueue_many(20, "K")
        others = await harness.enqueue_many(3, "B")
        got = await harness.claim(10)
        assert [task.kind for task in got] == ["K", "B", "B", "B"]
        assert {task.id for task in got} > set(others)

    async def test_a_quota_counts_over_all_queues(self, harness: Harness) -> None:
        await harness.limit("K", concurrency=2)
        for queue in ("a", "b", "c"):
            await harness.enqueue_many(2, "K", queue=queue)
        got = await harness.claim(9, queues=("b", "a", "c"))
        assert [task.queue for task in got] == ["b", "b"]

    async def test_a_place_is_free_again_after_every_way_out(self, harness: Harness) -> None:
        for kind in ("expire", "cancel-request", *SETTLED):
            await harness.limit(kind, concurrency=1)
            await harness.enqueue_many(2, kind, queue=kind)
            claimed = await harness.claim_one(queues=(kind,))
            assert await harness.claim(5, queues=(kind,)) == []
            assert (await limit_of(harness, kind)).running == 1
            if kind == "expire":
                await harness.advance(LEASE + 1)
                await harness.recover()
            elif kind == "cancel-request":
                await harness.ask_to_cancel(claimed.id)
                await harness.settle(claimed, Released())
            else:
                await harness.settle(claimed, SETTLED[kind][0])
            assert (await limit_of(harness, kind)).running == 0, kind
            assert len(await harness.claim(5, queues=(kind,))) == 1, kind
            assert (await limit_of(harness, kind)).running == 1, kind

    async def test_a_late_settlement_frees_nothing(self, harness: Harness) -> None:
        await harness.limit("K", concurrency=1)
        await harness.enqueue_many(3, "K")
        first = await harness.claim_one()
        await harness.advance(LEASE + 1)
        await harness.recover()
        await harness.claim_one()
        assert not await harness.settle(first, Completed())
        assert await harness.claim(5) == []

    async def test_two_stores_never_exceed_a_quota(self, harness: Harness) -> None:
        """Many rounds of concurrent claims and settlements; after each, at most three run, and places are used."""
        other = await harness.another()
        await harness.limit("K", concurrency=3)
        await harness.enqueue_many(60, "K")
        dice = random.Random(7)  # noqa: S311
        running: list[tuple[Claimed, int]] = []
        done = rounds = 0
        while done < 60:
            rounds += 1
            assert rounds < 200
            stores = (harness.store, other)
            leaving = dice.sample(running, dice.randint(0, len(running)))
            running = [entry for entry in running if entry not in leaving]
            ended: list[list[Claimed]] = [[], []]
            for claimed, owner in leaving:
                ended[owner].append(claimed)
            cycles = await asyncio.gather(
                *(
                    stores[n].cycle(
                        Commit(transitions=[harness.decide(claimed, Completed()) for claimed in ended[n]]),
                        harness.want(dice.randint(1, 4), worker=f"w{n}"),
                    )
                    for n in (0, 1)
                )
            )
            done += len(leaving)
            running += [(claimed, n) for n in (0, 1) for claimed in cycles[n].claimed]
            assert len(running) <= 3
            assert await harness.count(State.RUNNING) == len(running) == (await limit_of(harness, "K")).running
        await harness.check_totals()

    async def test_a_race_for_the_last_place_has_one_winner(self, harness: Harness) -> None:
        other = await harness.another()
        await harness.limit("VIDEO_GEN", concurrency=1)
        await harness.enqueue_many(20, "VIDEO_GEN")
        for _ in range(10):
            one, two = await asyncio.gather(harness.claim(3), harness.claim(3, worker="w2", store=other))
            assert len(one) + len(two) == 1
            assert await harness.settle((one + two)[0], Completed())

    async def test_a_quota_introduced_while_tasks_run_counts_them(self, harness: Harness) -> None:
        await harness.enqueue_many(6, "K")
        running = await harness.claim(3)
        await harness.limit("K", concurrency=2)
        assert (await limit_of(harness, "K")).running == 3
        for task in running[:2]:
            assert await harness.claim(5) == []
            await harness.settle(task, Completed())
        assert len(await harness.claim(5)) == 1

    async def test_a_quota_introduced_while_others_claim_is_exact(self, harness: Harness) -> None:
        other = await harness.another()
        for n in range(6):
            kind = f"K{n}"
            await harness.enqueue_many(10, kind)
            claims = await asyncio.gather(
                harness.claim(4), harness.claim(4, store=other), harness.limit(kind, concurrency=1), harness.claim(1)
            )
            # A store that does not listen may have left one of the last round for this one.
            running = sum(task.kind == kind for claimed in claims if claimed for task in claimed)
            assert (await limit_of(harness, kind)).running == running
            assert running == 0 or not any(task.kind == kind for task in await harness.claim(5))
            await harness.control(Limit(kind, None, None, "ann"))
            while claimed := await harness.claim(20):
                await harness.settle_many([(task, Completed()) for task in claimed])

    async def test_a_quota_raised_lowered_and_lifted(self, harness: Harness) -> None:
        await harness.limit("K", concurrency=1)
        await harness.enqueue_many(9, "K")
        assert len(await harness.claim(9)) == 1
        await harness.limit("K", concurrency=3)
        assert len(await harness.claim(9)) == 2
        await harness.limit("K", concurrency=2)
        assert await harness.claim(9) == []
        await harness.limit("K")
        assert len(await harness.claim(9)) == 6

    async def test_a_worker_does_not_overrule_an_operator(self, harness: Harness) -> None:
        await harness.limit("K", concurrency=5)
        await harness.control(Limit("K", 1, None, "ann"))
        await harness.limit("K", concurrency=5)
        row = await limit_of(harness, "K")
        assert (row.concurrency, row.actor) == (1, "ann")
        (audit,) = await harness.audit()
        assert (audit.actor, audit.action, audit.target) == ("ann", "KIND_LIMIT", "kind:K")
        assert (audit.before["concurrency"], audit.after["concurrency"]) == (5, 1)

    async def test_a_rate_spaces_starts(self, harness: Harness) -> None:
        await harness.limit("K", rate_ms=60_000)
        await harness.enqueue_many(4, "K")
        other = await harness.enqueue("B")
        assert {task.kind for task in await harness.claim(9)} == {"K", "B"}
        assert await harness.state(other) is State.RUNNING
        assert await harness.claim(9) == []
        await harness.advance(50)
        assert await harness.claim(9) == []
        await harness.advance(11)
        assert len(await harness.claim(9)) == 1
        assert await harness.claim(9) == []

    async def test_a_rate_does_not_wait_for_the_date_of_a_clock_that_was_ahead(self, harness: Harness) -> None:
        await harness.limit("K", rate_ms=60_000)
        await harness.enqueue_many(3, "K")
        assert len(await harness.claim(3)) == 1
        await harness.advance(-365 * 86_400.0)
        assert len(await harness.claim(3)) == 1
        assert len(await harness.claim(3)) == 0

    async def test_a_rate_is_kept_by_the_fleet(self, harness: Harness) -> None:
        other = await harness.another()
        await harness.limit("K", rate_ms=60_000)
        await harness.enqueue_many(30, "K", queue="a")
        await harness.enqueue_many(30, "K", queue="b")
        for _ in range(8):
            claims = await asyncio.gather(
                *(harness.claim(3, queues=("a", "b"), store=store) for store in (harness.store, other) * 2)
            )
            assert sum(map(len, claims)) == 1
            await harness.advance(61)

    async def test_a_rate_and_a_quota_together(self, harness: Harness) -> None:
        await harness.limit("K", concurrency=2, rate_ms=60_000)
        await harness.enqueue_many(5, "K")
        for expected in (1, 1, 0):
            assert len(await harness.claim(5)) == expected
            await harness.advance(61)

    async def test_a_tick_says_when_a_rate_opens(self, harness: Harness) -> None:
        await harness.limit("K", rate_ms=60_000)
        await harness.enqueue_many(2, "K")
        await harness.claim(2)
        due = (await harness.tick()).next_due
        assert due is not None and 0 < due <= 60

    async def test_tasks_enqueued_before_the_limit_obey_it(self, harness: Harness) -> None:
        ids = await harness.enqueue_many(5, "K")
        await harness.limit("K", concurrency=1)
        got = await harness.claim(5)
        assert [task.id for task in got] == ids[:1]
        await harness.settle(got[0], Completed())
        assert [task.id for task in await harness.claim(5)] == ids[1:2]

    async def test_limits_hold_for_delayed_and_retried_tasks(self, harness: Harness) -> None:
        await harness.limit("K", concurrency=1)
        await harness.enqueue_many(3, "K", delay=10.0)
        await harness.advance(11)
        assert (await harness.tick()).promoted == 3
        assert len(await harness.claim(5)) == 1

    async def test_recount_finds_nothing_to_repair(self, harness: Harness) -> None:
        await harness.limit("K", concurrency=4)
        await harness.enqueue_many(9, "K")
        for name in ("complete", "fail", "retry", "snooze", "release"):
            await harness.settle(await harness.claim_one(), SETTLED[name][0])
        await harness.claim(2)
        before = await limit_of(harness, "K")
        assert await harness.store.upkeep("recount") == 0
        assert await limit_of(harness, "K") == before
