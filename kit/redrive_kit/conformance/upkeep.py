"""Upkeep: retention removes what is old, and nothing that is still needed."""

from __future__ import annotations

from uuid import UUID

from redrive.kernel.commit import Commit
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Completed
from redrive.kernel.ports.reads import get_task
from redrive.kernel.ports.store import CauseQuery, Query
from redrive.kernel.records import Put
from redrive.kernel.retention import RecordRule, Retention
from redrive.kernel.task import Claimed, State
from redrive_kit.conformance.harness import Harness, failing

DAY = 86_400.0
KEEP = Retention(
    history_days=10.0,
    key_days=3.0,
    attempt_days=10.0,
    dead_letter_days=20.0,
    cause_days=20.0,
    noted_cause_days=40.0,
    records={"over": RecordRule(5.0, ("done",)), "any": RecordRule(5.0), "last": RecordRule(5.0, keep_last=True)},
)


async def tidy(harness: Harness) -> None:
    for duty in ("fold", "partitions", "prune"):
        await harness.store.upkeep(duty, KEEP)


class TestUpkeep:
    async def test_history_is_kept_and_then_removed(self, harness: Harness) -> None:
        claimed = await harness.running()
        await harness.settle(claimed, Completed())
        await harness.advance(8 * DAY)
        await tidy(harness)
        assert await harness.state(claimed.id) is State.COMPLETED
        await harness.advance(4 * DAY)
        await tidy(harness)
        assert await get_task(harness.store, claimed.id) is None
        assert await harness.count(State.COMPLETED) == 1  # totals count everything ever finished

    async def test_a_kind_says_how_long_its_completed_tasks_are_kept(self, harness: Harness) -> None:
        short, usual = await harness.running("SHORT"), await harness.running("USUAL")
        for claimed, keep in ((short, 3600.0), (usual, None)):
            await self.complete(harness, keep, claimed)
        await harness.advance(3000)
        await tidy(harness)
        assert await harness.state(short.id) is State.COMPLETED
        await harness.advance(700)
        async with harness.measure(harness.store) as cost:
            assert await harness.store.upkeep("prune", KEEP) == 1
        assert cost.scans == []
        assert await get_task(harness.store, short.id) is None
        assert await harness.state(usual.id) is State.COMPLETED
        assert await harness.count(State.COMPLETED) == 2

    async def test_a_kind_that_leaves_nothing(self, harness: Harness) -> None:
        await harness.enqueue_many(3, "NONE")
        claimed = await harness.claim(3)
        lost = await self.complete(harness, 0.0, *claimed[:2])
        assert lost == set()
        assert [await get_task(harness.store, task.id) for task in claimed] == [
            None,
            None,
            await harness.task(claimed[2].id),
        ]
        assert await harness.count(State.COMPLETED) == 2
        assert await harness.count(State.RUNNING) == 1
        assert await self.complete(harness, 0.0, claimed[0]) == {claimed[0].id}  # its token was used
        assert await self.complete(harness, 0.0, claimed[0], again=True) == set()  # its answer was lost

    async def test_a_short_kind_does_not_read_the_others(self, harness: Harness) -> None:
        await harness.stock(20_000, State.COMPLETED, kind="USUAL")
        claimed = await harness.running("SHORT")
        await self.complete(harness, 60.0, claimed)
        await harness.advance(100)
        async with harness.measure(harness.store) as cost:
            assert await harness.store.upkeep("prune", KEEP) == 1
        assert cost.rows < 5000, cost.rows

    async def complete(self, harness: Harness, keep: float | None, *claimed: Claimed, again: bool = False) -> set[UUID]:
        moves = [harness.decide(task, Completed()) for task in claimed]
        for move in moves:
            move.keep = keep
        return (await harness.store.cycle(Commit(transitions=moves), None, again=again)).lost

    async def test_live_tasks_are_never_removed(self, harness: Harness) -> None:
        waiting = await harness.enqueue()
        failed = await harness.failed(queue="q")
        await harness.advance(400 * DAY)
        await tidy(harness)
        assert [await harness.state(i) for i in (waiting, failed)] == [State.QUEUED, State.FAILED]
        timeline = await harness.store.timeline(failed)
        assert timeline is not None and len(timeline.attempts) == len(timeline.dead_letters) == 1

    async def test_a_key_is_free_again_after_its_time(self, harness: Harness) -> None:
        done = await harness.running(idempotency_key="done")
        await harness.settle(done, Completed())
        live = await harness.enqueue(idempotency_key="live", queue="q")
        await harness.advance(2 * DAY)
        await tidy(harness)
        assert await harness.enqueue(idempotency_key="done") == done.id
        await harness.advance(2 * DAY)
        await tidy(harness)
        assert await harness.enqueue(idempotency_key="done") != done.id
        assert await harness.enqueue(idempotency_key="live", queue="q") == live

    async def test_attempts_of_removed_tasks_go_too(self, harness: Harness) -> None:
        await harness.enqueue()
        claimed = await harness.claim_one()
        await harness.settle(claimed, failing())
        await harness.advance(11)
        await harness.tick()
        await harness.settle(await harness.claim_one(), Completed())
        await harness.advance(20 * DAY)
        await tidy(harness)
        assert await harness.store.timeline(claimed.id) is None

    async def test_one_that_is_kept_does_not_end_the_round(self, harness: Harness) -> None:
        await harness.enqueue(idempotency_key="kept", queue="q")
        await harness.store.apply(Commit(enqueues=[harness.new(idempotency_key=f"k{n}") for n in range(5100)]))
        while claimed := await harness.claim(2000):
            await harness.settle_many([(task, Completed()) for task in claimed])
        await harness.advance(4 * DAY)
        assert await harness.store.upkeep("prune", KEEP) == 5100

    async def test_what_is_kept_is_read_once_and_pruned_when_its_task_has_left(self, harness: Harness) -> None:
        ids = await harness.enqueue_many(100, max_attempts=1)
        while claimed := await harness.claim(10):
            await harness.settle_many([(task, failing()) for task in claimed])
            await harness.advance(1)
        await harness.advance(20 * DAY)
        async with harness.measure(harness.store) as first:
            await harness.store.upkeep("prune", KEEP)
        async with harness.measure(harness.store) as second:
            await harness.store.upkeep("prune", KEEP)
        assert second.rows < first.rows / 3, (first.rows, second.rows)
        await harness.operate(Event.CANCEL, *ids)
        await harness.advance(11 * DAY)
        await tidy(harness)
        assert [await harness.store.timeline(task_id) for task_id in ids] == [None] * 100

    async def test_what_belongs_to_a_finished_task_stays_as_long_as_it(self, harness: Harness) -> None:
        failed = await harness.failed()
        await harness.advance(25 * DAY)
        await harness.operate(Event.CANCEL, failed)
        await harness.advance(2 * DAY)
        await tidy(harness)
        timeline = await harness.store.timeline(failed)
        assert timeline is not None and len(timeline.attempts) == len(timeline.dead_letters) == 1
        await harness.advance(12 * DAY)
        await tidy(harness)
        await harness.advance(2 * DAY)  # a pass looks once a day at what it had to keep
        await tidy(harness)
        assert await harness.store.timeline(failed) is None
        assert await harness.store.dead_letters(Query()) == []

    async def test_dead_letters_go_after_their_time_and_not_before(self, harness: Harness) -> None:
        for _ in range(3):
            claimed = await harness.running(max_attempts=1)
            await harness.settle(claimed, failing())
            await harness.operate(Event.REDRIVE, claimed.id)
            await harness.settle(await harness.claim_one(), Completed())
            await harness.advance(6 * DAY)
            await tidy(harness)
        assert len(await harness.store.dead_letters(Query())) == 3
        await harness.advance(3 * DAY)  # 21, 15 and 9 days old
        await tidy(harness)
        assert len(await harness.store.dead_letters(Query())) == 2
        await harness.advance(30 * DAY)
        await tidy(harness)
        assert await harness.store.dead_letters(Query()) == []

    async def test_causes_by_which_nothing_is_failed_go(self, harness: Harness) -> None:
        found = []
        for kind, message in (("A", "one thing"), ("B", "another"), ("C", "the third")):
            claimed = await harness.running(kind, max_attempts=1)
            await harness.settle(claimed, failing(message))
            found.append((await harness.task(claimed.id)).error_fingerprint)
        quiet, noted, failed = found
        await harness.store.apply(Commit(puts=[Put("cause", noted or "", {"note": "known"})]))
        for kind in ("A", "B"):
            [task] = await harness.store.find(Query(states=(State.FAILED,), kind=kind))
            await harness.operate(Event.CANCEL, task.id)
        for days, left in ((15, {quiet, noted, failed}), (10, {noted, failed}), (20, {failed})):
            await harness.advance(days * DAY)
            await tidy(harness)
            assert {cause.fingerprint for cause in await harness.store.causes(CauseQuery(10))} == left
        assert await harness.store.record("cause", noted or "") is None
        [task] = await harness.store.find(Query(states=(State.FAILED,)))
        await harness.operate(Event.CANCEL, task.id)
        await harness.advance(2 * DAY)
        await tidy(harness)
        assert await harness.store.causes(CauseQuery(10)) == []

    async def test_documents_go_by_the_rule_of_their_collection(self, harness: Harness) -> None:
        async def put(collection: str, name: str, state: str = "") -> None:
            await harness.store.apply(Commit(puts=[Put(collection, name, {}, state=state)]))

        for collection, name, state in (
            ("over", "a", "done"),
            ("over", "b", "open"),
            ("any", "a", ""),
            ("last", "a", ""),
            ("last", "b", ""),
            ("free", "a", ""),
        ):
            await put(collection, name, state)
        await harness.advance(6 * DAY)
        await put("any", "b")
        await tidy(harness)
        found = {
            (name, record.id)
            for name in ("over", "any", "last", "free")
            for record in await harness.store.records(name)
        }
        assert found == {("over", "b"), ("any", "b"), ("last", "b"), ("free", "a")}

    async def test_many_causes_shrink_in_bounded_pieces(self, harness: Harness) -> None:
        await harness.stock_causes(12_000)
        await harness.advance(30 * DAY)
        async with harness.measure(harness.store) as cost:
            assert await harness.store.upkeep("prune", KEEP) == 12_000
        assert cost.scans == []
        assert await harness.store.causes(CauseQuery(10)) == []

    async def test_workers_not_seen_for_long_are_forgotten(self, harness: Harness) -> None:
        await harness.tick("gone")
        await harness.advance(2 * DAY)
        await harness.tick("here")
        await tidy(harness)
        assert [worker.id for worker in (await harness.store.overview()).workers] == ["here"]

    async def test_an_unknown_duty_does_nothing(self, harness: Harness) -> None:
        assert await harness.store.upkeep("no_such_duty", KEEP) == 0
