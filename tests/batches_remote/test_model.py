"""Whatever becomes of items, in whatever order, with leases lost and answers late: the books are right at every moment,
and each round of a batch is settled once."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from redrive.batches.names import DISPATCH, RELEASE, SETTLE, BatchState
from redrive.batches.remote.actions import RemoteBatchActions
from redrive.batches.remote.application import RemoteBatches
from redrive.batches.remote.model import RemoteBatch, count_items
from redrive.errors import RedriveError
from redrive.kernel.audit import AuditFilter
from redrive.kernel.machine import Event
from redrive.kernel.reads import Query
from redrive.kernel.task import State
from redrive.ledger.service import Ledger
from tests.batches_remote.by_hand import POLLS, STARTS, Hands, Told
from tests.batches_remote.conftest import ANN, made, make_app, rich
from tests.effort import tries
from tests.machines import AppMachine, Database, play_on_sqlite

ITEM = "BATCH_ITEM_VIDEO"
KINDS = (DISPATCH, ITEM, RELEASE, SETTLE)
MONEY, LANES = 60, 2
LONG_AGO = (
    "update redrive_batches_item set brought_at = brought_at - 864000000000, started_at = started_at - 864000000000"
)
NEW = st.tuples(st.integers(1, 5), st.sampled_from([0, 1, 3, 7]))  # items, and the price of each


class RemoteMachine(AppMachine):
    """A few batches that one account pays for, and workers that take turns."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.batches: list[RemoteBatch] = []
        self.retried: Counter[str] = Counter()
        self.put_away = 0  # tasks of items that an operator has cancelled
        self.left_before: Counter[Any] = Counter()  # of a batch: items without a task, of earlier rounds

    @initialize(first=NEW, second=NEW)
    def begin(self, first: tuple[int, int], second: tuple[int, int]) -> None:
        self.run(self._begin())
        self.create(first)
        self.create(second)

    async def _begin(self) -> None:
        await self.open(make_app(self.url, max_poll_count=3, max_start=LANES))
        self.provider = Told()
        self.app.provider("video", self.provider)
        await rich(self.app, amount=MONEY)
        for kind in KINDS:  # as a worker does: bulk kinds have lanes of their own
            await self.harness.limit(kind)
        self.hands = Hands(self.app, self.harness)
        self.own = self.app.of(RemoteBatches)

    # -- what people do ----------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.batches) < 4)
    @rule(new=NEW)
    def create(self, new: tuple[int, int]) -> None:
        self.batches.append(self.run(made(self.app, [{}] * new[0], price=new[1])))

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self._ask(self.own.cancel, data)

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def retry_failed(self, data: st.DataObject) -> None:
        self._ask(self.own.retry_failed, data)

    def _ask(self, action: Any, data: st.DataObject) -> None:
        """Does what an operator asked for, or is told why not."""
        batch = data.draw(st.sampled_from(self.batches))
        with suppress(RedriveError):
            self.run(action(batch.id))

    @rule(data=st.data())
    def retry_item(self, data: st.DataObject) -> None:
        self._operate(Event.REDRIVE, (State.FAILED, State.CANCELLED), data)

    @rule(data=st.data())
    def cancel_item(self, data: st.DataObject) -> None:
        self._operate(Event.CANCEL, (State.QUEUED, State.DELAYED, State.FAILED), data)

    def _operate(self, event: Event, states: tuple[State, ...], data: st.DataObject) -> None:
        found = [task for state in states for task in self.run(self._items(state))]
        if found:
            chosen = data.draw(st.sampled_from(sorted(found, key=lambda task: task.id)))
            self.run(self.harness.operate(event, chosen.id))
            self.retried["all"] += event is Event.REDRIVE
            self.put_away += event is Event.CANCEL

    async def _items(self, state: State) -> list[Any]:
        return await self.harness.store.find(Query(kind=ITEM, states=(state,), limit=100))

    # -- what workers do ---------------------------------------------------------------------------------------------

    @rule(
        data=st.data(),
        n=st.integers(1, 4),
        starts=st.sampled_from(STARTS),
        polls=st.sampled_from(POLLS),
        calls=st.integers(1, 2),
        landing=st.booleans(),
    )
    def work(self, data: st.DataObject, n: int, starts: str, polls: str, calls: int, landing: bool) -> None:
        """Something of what is ready is done, steps perhaps by two at once, one of whom has lost the lease. It lands
        now or later."""
        self.provider.start_next, self.provider.poll_next = starts, polls
        if kinds := self.run(self.hands.ready(KINDS)):
            kind = data.draw(st.sampled_from(kinds))
            self.run(self.hands.work(kind, n, 1 if kind == ITEM else calls))
            if landing:
                self.run(self.hands.land(-1))

    @rule(polls=st.lists(st.sampled_from(["ok", "failed", "running"]), min_size=2, max_size=4))
    def work_on(self, polls: list[str]) -> None:
        """Workers do all that is ready, several times: so that there is a second round, and a third."""
        self.provider.start_next = "ok"
        for self.provider.poll_next in polls:
            self.run(self._everything())

    @precondition(lambda self: self.hands.held)
    @rule(data=st.data())
    def land(self, data: st.DataObject) -> None:
        self.run(self.hands.land(data.draw(st.integers(0, len(self.hands.held) - 1))))

    @rule()
    def leases_end(self) -> None:
        self.run(self.hands.lose())

    @rule()
    def time_passes(self) -> None:
        """Items are older than they may be, and whatever waits is due."""
        self.run(self.harness.sql(LONG_AGO))
        self.run(self.harness.advance(600))

    # -- what holds --------------------------------------------------------------------------------------------------

    @invariant()
    def books_are_right(self) -> None:
        if self.batches:
            self.run(self._check())

    async def _check(self) -> None:
        store = self.harness.store
        verdict = await (await self.app.operator(ANN)).of(Ledger).verify()
        assert verdict.ok, verdict.problems
        said = await store.audit(AuditFilter(action="BATCH_SETTLED"), limit=1000)
        rounds = {(row.target, row.after["round"]): row.after["captured"] for row in said}
        assert len(rounds) == len(said), "a round was settled twice"
        ended = 0
        self.batches = [await self.own.get(batch.id) for batch in self.batches]
        for batch in self.batches:
            ended += batch.round - 1 + batch.settled
            await self._check_batch(batch, rounds)
        events = await store.find(Query(kind="WEBHOOK_EVENT", limit=1000))
        assert len(events) == ended, "each round is told of once"
        assert sum(batch.frozen for batch in self.batches) == await store.sql.balance("frozen:acme")
        assert sum(batch.captured for batch in self.batches) == await store.sql.balance("system:revenue")

    async def _check_batch(self, batch: RemoteBatch, rounds: dict[tuple[Any, int], int]) -> None:
        store = self.harness.store
        counts = await count_items(store, batch)
        in_round = sum(counts.in_round.values())
        assert sum(counts.states.values()) == batch.items and in_round == batch.in_round
        charged = batch.state is BatchState.PROCESSING or (batch.state is BatchState.QUEUED and batch.round > 1)
        assert batch.frozen == 0 or charged
        if batch.settled:
            assert not counts.states["pending"] and not counts.states["processing"], counts
        if (captured := rounds.get((batch.reference, batch.round))) is not None and batch.settled:
            assert captured == batch.price * counts.in_round["completed"]
        if batch.settled:
            assert batch.captured == batch.price * counts.states["completed"]
        unstarted = await self._unstarted(batch)
        if batch.state is BatchState.PROCESSING:
            await self._check_join(batch, counts, unstarted)

    async def _check_join(self, batch: RemoteBatch, counts: Any, unstarted: Counter[str]) -> None:
        """The join has counted what the rows say: what came into being, and how it ended. Of a cancelled batch the last
        in a chain may bring a task whose row is cancelled already, which does nothing; and so may such a task, where an
        operator cancels it."""
        (join,) = await self.harness.store.joins([batch.join_id])
        strays = join.total - (batch.in_round - sum(unstarted.values()))
        assert 0 <= strays <= (0 if batch.cancelled_at is None else LANES + self.put_away)
        assert join.completed == counts.in_round["completed"]
        ended = counts.in_round["failed"] + counts.in_round["cancelled"] - unstarted["cancelled"]
        assert 0 <= join.failed + join.cancelled - ended <= strays

    async def _unstarted(self, batch: RemoteBatch) -> Counter[str]:
        """Returns how many items of this round have no task, by their state. Those that an earlier round left when it
        was cancelled are retried by nobody: they are all that are cancelled as long as this round is not."""
        items = await (await self.app.operator(ANN)).of(RemoteBatchActions).items(batch.id)
        found = Counter(item.state for item in items if item.task_id is None)
        if batch.cancelled_at is None:
            self.left_before[batch.id] = found["cancelled"]
        found["cancelled"] -= self.left_before[batch.id]
        return found

    # -- the end -----------------------------------------------------------------------------------------------------

    async def come_to_an_end(self) -> None:
        """Nothing is stuck: when workers do what they should, all batches are settled, and so is one more round of each
        in which nothing succeeds."""
        await self.hands.lose()
        for self.provider.poll_next in ("ok", "failed"):
            self.provider.start_next = "ok"
            await self._all_is_settled()
            for batch in self.batches:
                with suppress(RedriveError):
                    await self.own.retry_failed(batch.id)
        await self._all_is_settled()

    async def _all_is_settled(self) -> None:
        for _ in range(60):
            await self.harness.advance(600)
            if not await self._everything():
                break
        await self._check()
        if left := [batch for batch in self.batches if not batch.settled]:
            tasks = await self.harness.store.find(Query(limit=100))
            told = [(task.kind, task.state.value, task.payload, task.error_code) for task in tasks]
            pytest.fail(f"{[batch.id for batch in left]} are not settled: {told}")

    async def _everything(self) -> bool:
        """Does what is ready; returns whether anything was."""
        worked = [await self.hands.work(kind, 2 if kind == ITEM else 50) for kind in KINDS]
        while self.hands.held:
            await self.hands.land(0)
        return any(worked)


def test_sqlite(tmp_path: Path) -> None:
    play_on_sqlite(RemoteMachine, make_app, tmp_path, max_examples=tries(5, 12, 15), stateful_step_count=30)
