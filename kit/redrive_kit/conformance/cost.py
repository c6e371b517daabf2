"""Cost: of what is asked for, not of the backlog. Statement counts and plans are part of the contract."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from redrive.kernel.commit import Commit
from redrive.kernel.outcome import Completed
from redrive.kernel.ports.store import Store
from redrive.kernel.task import Claimed, State
from redrive_kit.conformance.harness import LEASE, Cost, Harness, failing

BACKLOG = {
    ("SATURATED", State.QUEUED): 20_000,
    ("WAITING", State.QUEUED): 4_000,
    ("LATER", State.DELAYED): 4_000,
    ("BROKEN", State.FAILED): 4_000,
    ("DONE", State.COMPLETED): 4_000,
    ("BUSY", State.RUNNING): 1_000,
}
HOT = ("enqueue", "claim", "settle", "renew", "tick", "expired", "recover", "counts")


async def measure(harness: Harness, work: Callable[[], Awaitable[Any]]) -> Cost:
    async with harness.measure(harness.store) as cost:
        await work()
    return cost


async def run_hot_verbs(harness: Harness, size: int) -> dict[str, Cost]:
    """Each hot verb once, with ``size`` tasks; the queue's other tenants are not touched."""
    store = harness.store
    costs: dict[str, Cost] = {}
    claimed: list[Claimed] = []

    async def claim() -> None:
        claimed.extend(await harness.claim(2 * size, queues=("hot",)))

    async def settle() -> None:
        half = [harness.decide(t, Completed() if n % 2 else failing()) for n, t in enumerate(claimed[:size])]
        assert not (await store.cycle(Commit(transitions=half), None)).lost

    costs["enqueue"] = await measure(
        harness, lambda: store.apply(Commit(enqueues=[harness.new("HOT", queue="hot") for _ in range(2 * size)]))
    )
    costs["claim"] = await measure(harness, claim)
    assert len(claimed) == 2 * size
    costs["renew"] = await measure(harness, lambda: store.renew([(t.id, t.token) for t in claimed], LEASE, {}))
    costs["settle"] = await measure(harness, settle)
    await harness.tick()
    costs["tick"] = await measure(harness, harness.tick)
    costs["expired"] = await measure(harness, lambda: store.expired(50))
    await harness.advance(LEASE + 1)
    moves = await harness.look_for_expired()
    assert len(moves) == size
    costs["recover"] = await measure(harness, lambda: store.apply(Commit(transitions=moves)))
    costs["counts"] = await measure(harness, store.counts)
    # Leave nothing behind: the next round starts from the same place.
    for task in await harness.claim(size, queues=("hot",)):
        await harness.settle(task, Completed())
    return costs


async def warm_up(store: Store, harness: Harness) -> None:
    """The first use of a connection prepares statements and reads catalogs."""
    await run_hot_verbs(harness, 2)


class TestCost:
    async def test_many_tasks_cost_as_many_statements_as_a_single_task(self, harness: Harness) -> None:
        await warm_up(harness.store, harness)
        small, large = await run_hot_verbs(harness, 2), await run_hot_verbs(harness, 40)
        for verb in HOT:
            assert len(large[verb].statements) <= len(small[verb].statements), (verb, large[verb].statements)

    @pytest.mark.timeout(60)
    async def test_a_backlog_costs_nothing(self, harness: Harness) -> None:
        """37,000 rows that wait, are delayed, run, failed or finished do not make any hot verb visit more rows."""
        await harness.limit("SATURATED", concurrency=1)
        await harness.enqueue("SATURATED", queue="hot")
        assert len(await harness.claim(5, queues=("hot",), lease=1e6)) == 1
        await warm_up(harness.store, harness)
        await harness.store.upkeep("fold")
        small = await run_hot_verbs(harness, 10)
        for (kind, state), count in BACKLOG.items():
            await harness.stock(count, state, kind=kind, queue="hot" if kind == "SATURATED" else "default")
        await harness.store.upkeep("fold")
        large = await run_hot_verbs(harness, 10)
        for verb in HOT:
            assert large[verb].scans == [], verb
            assert large[verb].rows <= 2 * small[verb].rows + 100, (verb, small[verb].rows, large[verb].rows)
            assert len(large[verb].statements) <= len(small[verb].statements), verb
