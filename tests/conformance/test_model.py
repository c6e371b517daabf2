"""A store against a simple model: Hypothesis looks for a history in which they disagree."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from redrive.ids import new_id
from redrive.kernel.audit import AuditFilter
from redrive.kernel.commit import Commit, Target
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Cancel, Completed, Outcome, Released, Retry, Snooze
from redrive.kernel.ports.store import Query
from redrive.kernel.task import Claimed, State
from redrive_kit.conformance.harness import TERMINAL, Harness, failing, operator_move
from tests.conformance.harness_postgres import PostgresHarness
from tests.conformance.harness_sqlite import SqliteHarness
from tests.conformance.model import QUOTA, Model, Row
from tests.effort import tries

T = TypeVar("T")
End = Callable[[Harness], Awaitable[None]]
LEASE = 60.0
ENDS: list[Outcome] = [Completed(), TERMINAL, Cancel("stop")]
OUTCOMES: list[Outcome] = [*ENDS, failing(), Retry("now", after=0), Snooze(20), Snooze(0), Released()]
OPERATIONS = [Event.REDRIVE, Event.CANCEL, Event.PAUSE, Event.RESUME]
picks = st.integers(min_value=0, max_value=10_000)
QUICK = settings(
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


class Machine(RuleBasedStateMachine):
    """Every rule does the same to both and compares the answers; the invariants compare all that is left behind."""

    def __init__(self, runner: asyncio.Runner, make: Callable[[], Awaitable[Harness]], end: End) -> None:
        super().__init__()
        self._runner, self._end = runner, end
        self.model = Model()
        self.leases: list[Claimed] = []  # every lease ever given, also those lost, ended or forgotten by a crash
        self.harness: Harness = self.do(make())
        for kind, quota in QUOTA.items():
            self.do(self.harness.limit(kind, concurrency=quota))

    def do(self, work: Awaitable[T]) -> T:
        async def run() -> T:
            return await work

        return self._runner.run(run())

    # -- producers -------------------------------------------------------------------------------------------------

    @rule(
        kind=st.sampled_from(["FREE", "LIMITED"]),
        priority=st.sampled_from([0, 0, -1, 5]),
        most=st.integers(1, 3),
        delay=st.sampled_from([0.0, 0.0, 30.0]),
        count=st.integers(1, 3),
    )
    def enqueue(self, kind: str, priority: int, most: int, delay: float, count: int) -> None:
        # One at a time when delayed: the order of tasks that are due at the same instant is not promised.
        tasks = [
            self.harness.new(kind, priority=priority, max_attempts=most, delay=delay or None)
            for _ in range(1 if delay else count)
        ]
        self.do(self.harness.store.apply(Commit(enqueues=tasks)))
        for task in tasks:
            self.model.enqueue(Row(task.id, kind, priority, most, State.QUEUED), delay)

    @rule(key=st.sampled_from(["k1", "k2"]), payload=st.sampled_from(["1", "2"]))
    def enqueue_with_key(self, key: str, payload: str) -> None:
        task = self.harness.new("FREE", id=new_id(), payload=payload, max_attempts=1, idempotency_key=key)
        (answer,) = self.do(self.harness.store.apply(Commit(enqueues=[task]))).enqueued
        if key in self.model.keys:
            known, first = self.model.keys[key]
            assert (answer.id, answer.created, answer.conflict) == (known, False, first != payload)
        else:
            assert (answer.id, answer.created) == (task.id, True)
            self.model.keys[key] = (task.id, payload)
            self.model.enqueue(Row(task.id, "FREE", 0, 1, State.QUEUED), 0.0)

    # -- workers ---------------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4))
    def claim(self, count: int) -> None:
        expected = self.model.claimable(count)
        claimed = self.do(self.harness.claim(count, lease=LEASE))
        assert [task.id for task in claimed] == expected
        for task in claimed:
            self.model.claimed(task, LEASE)
            row = self.model.rows[task.id]
            assert task.attempt == row.attempts <= task.max_attempts
        self.leases += claimed

    # Rules bring about what they need instead of waiting for it: Hypothesis turns rules off at random to vary the
    # histories, and few of them would get far otherwise.

    @rule(pick=picks, outcome=st.sampled_from(OUTCOMES))
    def settle(self, pick: int, outcome: Outcome) -> None:
        """By whoever once held a lease: a worker that lost it does not know."""
        self._settle(self._lease(pick), outcome)

    @rule(pick=picks, outcome=st.sampled_from([Completed(), *OUTCOMES]))
    def settle_late(self, pick: int, outcome: Outcome) -> None:
        """By a worker whose task somebody else runs now."""
        if stale := self._overtaken():
            self._settle(stale[pick % len(stale)], outcome)

    @rule(pick=picks)
    def renew_late(self, pick: int) -> None:
        if stale := self._overtaken():
            task = stale[pick % len(stale)]
            assert self.model.renew(task, LEASE) is False
            assert not self.do(self.harness.renew(task, LEASE))

    @rule()
    def lose_all_leases(self) -> None:
        """A store outage longer than every lease; then recovery, and the next worker takes what is there."""
        self.advance(LEASE + 1)
        self.recover()
        self.claim(4)

    def _lease(self, pick: int) -> Claimed:
        if not self.leases:
            self.enqueue("FREE", 0, 3, 0.0, 2)
            self.claim(4)
        return self.leases[-1 - pick % min(len(self.leases), 6)]

    def _overtaken(self) -> list[Claimed]:
        def find() -> list[Claimed]:
            rows = self.model.rows
            return [t for t in self.leases if rows[t.id].state is State.RUNNING and rows[t.id].token != t.token]

        if not find():
            self._lease(0)
            self.lose_all_leases()
        return find()

    def _settle(self, task: Claimed, outcome: Outcome) -> None:
        expected = self.model.move(self.harness.decide(task, outcome))
        assert self.do(self.harness.settle(task, outcome)) == expected

    @precondition(lambda self: len(self.leases) > 1)
    @rule(
        first=st.sampled_from(OUTCOMES),
        rest=st.lists(st.sampled_from(ENDS), min_size=1, max_size=3),
        count=st.integers(0, 2),
    )
    def settle_many_and_claim(self, first: Outcome, rest: list[Outcome], count: int) -> None:
        """At most one of them returns to the queue: in which order several join the tail is not promised."""
        latest = list({task.id: task for task in self.leases}.values())
        pairs = list(zip(latest, [first, *rest], strict=False))
        lost = {task.id for task, outcome in pairs if not self.model.move(self.harness.decide(task, outcome))}
        expected = self.model.claimable(count)
        cycle = self.do(self.harness.settle_many(pairs, self.harness.want(count, lease=LEASE) if count else None))
        assert cycle.lost == lost
        assert [task.id for task in cycle.claimed] == expected
        for task in cycle.claimed:
            self.model.claimed(task, LEASE)
        self.leases += cycle.claimed

    @rule(pick=picks)
    def renew(self, pick: int) -> None:
        task = self._lease(pick)
        assert self.do(self.harness.renew(task, LEASE)) == self.model.renew(task, LEASE)

    @precondition(lambda self: self.leases)
    @rule(pick=picks)
    def crash(self, pick: int) -> None:
        """A worker dies: nobody will settle this lease."""
        self.leases.pop(pick % len(self.leases))

    @rule(seconds=st.sampled_from([5.0, 25.0, LEASE + 1]))
    def advance(self, seconds: float) -> None:
        self.do(self.harness.advance(seconds))
        self.model.clock += seconds

    @rule()
    def promote(self) -> None:
        assert self.do(self.harness.tick()).promoted == self.model.promote()

    @rule()
    def recover(self) -> None:
        expected = self.model.expired()
        moves = self.do(self.harness.look_for_expired())
        assert {move.task_id for move in moves} == expected
        for move in moves:
            assert self.model.move(move)
            assert self.do(self.harness.store.apply(Commit(transitions=[move]))).lost == set()

    # -- operators -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.rows)
    @rule(pick=picks, event=st.sampled_from(OPERATIONS))
    def operate(self, pick: int, event: Event) -> None:
        task_id = list(self.model.rows)[pick % len(self.model.rows)]
        expected = self.model.move(operator_move(event, task_id))
        assert self.do(self.harness.operate(event, task_id)) == expected

    @precondition(lambda self: self.model.rows)
    @rule(pick=picks)
    def ask_to_cancel(self, pick: int) -> None:
        task_id = list(self.model.rows)[pick % len(self.model.rows)]
        assert self.do(self.harness.ask_to_cancel(task_id)) == self.model.ask_to_cancel(task_id)

    @rule()
    def hold_for_a_moment(self) -> None:
        self.do(self.harness.hold(Target.QUEUE, "default"))
        self.do(self.harness.hold(Target.QUEUE, "default"))
        assert self.do(self.harness.claim(4, lease=LEASE)) == []
        self.do(self.harness.hold(Target.QUEUE, "default", False))
        self.model.audits += 2

    @rule()
    def fold(self) -> None:
        self.do(self.harness.store.upkeep("fold"))

    # -- what must hold --------------------------------------------------------------------------------------------

    @invariant()
    def every_task_is_in_the_one_state_it_should_be_in(self) -> None:
        found = self.do(self.harness.store.find(Query(limit=1000)))
        assert len(found) == len({task.id for task in found})
        seen = {
            t.id: (t.state, t.attempt_count, t.replay_count, t.lease_token, t.cancel_requested_at is not None)
            for t in found
        }
        rows = self.model.rows.values()
        assert seen == {r.id: (r.state, r.attempts, r.replays, r.token, r.cancel) for r in rows}
        assert all(0 <= task.attempt_count <= task.max_attempts for task in found)

    @invariant()
    def totals_are_exact(self) -> None:
        counted = Counter(("default", row.kind, row.state) for row in self.model.rows.values())
        assert self.do(self.harness.totals()) == dict(counted)

    @invariant()
    def records_are_complete(self) -> None:
        store = self.harness.store
        letters = Counter(letter.task_id for letter in self.do(store.dead_letters(Query(limit=1000))))
        assert letters == Counter({row.id: row.letters for row in self.model.rows.values() if row.letters})
        assert len(self.do(store.audit(AuditFilter(), limit=1000))) == self.model.audits

    def teardown(self) -> None:
        self.do(self._end(self.harness))


def check(make: Callable[[], Awaitable[Harness]], end: End, examples: int, steps: int) -> None:
    with asyncio.Runner() as runner:
        run_state_machine_as_test(
            lambda: Machine(runner, make, end),
            settings=settings(QUICK, max_examples=examples, stateful_step_count=steps),
        )


@pytest.mark.timeout(300)  # a failure takes its time to be made small
def test_sqlite_in_memory() -> None:
    async def make() -> Harness:
        harness = SqliteHarness(Path(":memory:"))
        await harness.store.open()
        return harness

    check(make, lambda harness: harness.close(), examples=tries(15, 40, 40), steps=40)


@pytest.mark.timeout(300)
def test_postgres(store_url: str) -> None:
    """One database and warm connections for all histories; emptied in between."""
    harness = PostgresHarness(store_url)

    async def make() -> Harness:
        return harness

    async def empty(_: Harness) -> None:
        tables = await harness.sql(
            "select string_agg(format('redrive.%I', tablename), ', ') from pg_tables"
            " where schemaname = 'redrive' and tablename <> 'migration' and tablename !~ '^history_'"
        )
        await harness.sql(f"truncate {tables[0][0]}")

    try:
        check(make, empty, examples=tries(6, 15, 15), steps=40)
    finally:
        # asyncpg connections die with their loop; the database is dropped with the fixture.
        for store in harness._stores:
            store.pool._idle.connections.clear()
            store.pool._idle_lent.connections.clear()
