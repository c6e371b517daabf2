"""Enqueue: what was accepted is found unchanged, once."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from redrive.errors import InvalidInput, StoreError, TooManyNames
from redrive.kernel.commit import Commit, Declare, Fire, KnownNames, Schedule
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Cancel, Completed
from redrive.kernel.ports.reads import get_task
from redrive.kernel.ports.store import Query
from redrive.kernel.task import State
from redrive_kit.conformance.harness import TERMINAL, Harness, TaskOptions

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PAYLOADS = [
    None,
    {},
    {"text": "snøstorm 雪 🌨 \\u0000 is text, \n and \t too"},
    {"nested": [[1, [2.5, {"deep": [None, True, False]}]]]},
    {"big": 2**63, "small": -(2**70), "tiny": 1e-9},
    ["a", "list"],
    "just text",
    0,
]


class TestEnqueue:
    async def test_every_field_comes_back(self, harness: Harness) -> None:
        task_id = await harness.enqueue(
            "SEND_EMAIL",
            queue="mail",
            payload='{"to":"a@b.c"}',
            priority=-7,
            max_attempts=9,
            timeout=2.5,
            group="tenant-1",
            scope="episode-4",
            trace_id="00-abc-def-01",
            idempotency_key="order-17",
        )
        task = await harness.task(task_id)
        assert (task.kind, task.queue, task.state, task.payload) == (
            "SEND_EMAIL",
            "mail",
            State.QUEUED,
            {"to": "a@b.c"},
        )
        assert (task.priority, task.max_attempts, task.timeout, task.attempt_count) == (-7, 9, 2.5, 0)
        assert (task.group, task.scope, task.trace_id) == ("tenant-1", "episode-4", "00-abc-def-01")
        assert task.idempotency_key == "order-17"
        assert task.created_at is not None and task.lease_token is None and task.next_attempt_at is None

        claimed = await harness.claim_one(queues=("mail",))
        assert (claimed.id, claimed.kind, claimed.queue, claimed.attempt) == (task_id, "SEND_EMAIL", "mail", 1)
        assert json.loads(claimed.payload or "null") == {"to": "a@b.c"}
        assert (claimed.priority, claimed.max_attempts, claimed.timeout) == (-7, 9, 2.5)
        assert (claimed.group, claimed.scope, claimed.trace_id) == ("tenant-1", "episode-4", "00-abc-def-01")
        assert (claimed.idempotency_key, claimed.created_at) == ("order-17", task.created_at)

    async def test_the_context_of_a_trace_is_kept_beside_its_id(self, harness: Harness) -> None:
        context = f"00-{TRACE}-00f067aa0ba902b7-01 congo=t61rcWkgMzE"
        ids = await harness.enqueue_many(2, trace_id=context)
        failed, cancelled = ids[0], ids[1]
        for task_id in ids:
            assert (await harness.task(task_id)).trace_id == TRACE
        if harness.reads:
            assert [task.id for task in await harness.store.find(Query(trace_id=TRACE))] == ids[::-1]
        first, second = await harness.claim(2)
        assert {(task.trace_id, task.trace_parent) for task in (first, second)} == {(TRACE, context)}
        await harness.settle(first, TERMINAL)
        await harness.settle(second, Cancel())
        for task_id in (failed, cancelled):
            assert await harness.operate(Event.REDRIVE, task_id)
        assert {task.trace_parent for task in await harness.claim(2)} == {context}, "also after a retry"

    async def test_payloads_are_kept_exactly(self, harness: Harness) -> None:
        for payload in PAYLOADS:
            text = None if payload is None else json.dumps(payload, ensure_ascii=False)
            task_id = await harness.enqueue(payload=text)
            assert (await harness.task(task_id)).payload == payload
            claimed = await harness.claim_one()
            assert (None if claimed.payload is None else json.loads(claimed.payload)) == payload

    async def test_many_in_one_commit_keep_their_order(self, harness: Harness) -> None:
        ids = await harness.enqueue_many(250)
        assert [task.id for task in await harness.claim(250)] == ids

    async def test_concurrent_callers_all_land(self, harness: Harness) -> None:
        other = await harness.another()
        tasks = [harness.new() for _ in range(60)]
        await asyncio.gather(
            *(
                store.apply(Commit(enqueues=[task]))
                for task, store in zip(tasks, [harness.store, other] * 30, strict=True)
            )
        )
        assert {task.id for task in await harness.claim(100)} == {task.id for task in tasks}
        await harness.check_totals()

    async def test_delay_and_run_at(self, harness: Harness) -> None:
        now = (await harness.store.overview()).now
        later = await harness.enqueue(delay=30.0)
        at = await harness.enqueue(run_at=now + timedelta(seconds=300))
        past = await harness.enqueue(run_at=now - timedelta(seconds=300))
        at_once = await harness.enqueue(delay=0.0)
        assert [await harness.state(i) for i in (later, at, past, at_once)] == [
            State.DELAYED,
            State.DELAYED,
            State.QUEUED,
            State.QUEUED,
        ]
        assert (await harness.task(at)).next_attempt_at == now + timedelta(seconds=300)
        assert {task.id for task in await harness.claim(10)} == {past, at_once}

    async def test_a_time_out_of_reach_is_refused_and_changes_nothing(self, harness: Harness) -> None:
        now = (await harness.store.overview()).now
        for run_at in (now + timedelta(days=3661), now + timedelta(days=100_000), datetime(1969, 12, 31, tzinfo=UTC)):
            tasks = [harness.new(idempotency_key="k"), harness.new(run_at=run_at, idempotency_key="l")]
            for some, all_or_none in ((tasks, False), (tasks[1:], False), (tasks, True)):
                with pytest.raises(InvalidInput, match="run_at must be after 1970 and at most 10 years ahead"):
                    await harness.store.apply(Commit(enqueues=some, all_or_none=all_or_none))
        assert await harness.totals() == {}
        await harness.check_totals()
        for task in (harness.new(idempotency_key="k"), harness.new(idempotency_key="l")):
            assert (await harness.store.apply(Commit(enqueues=[task]))).enqueued[0].created

    async def test_the_longest_times(self, harness: Harness) -> None:
        now = (await harness.store.overview()).now
        far = await harness.enqueue(run_at=now + timedelta(days=3659))
        late = await harness.enqueue(delay=3660 * 86400.0)
        past = await harness.enqueue(run_at=datetime(1970, 1, 2, tzinfo=UTC))
        assert [await harness.state(i) for i in (far, late, past)] == [State.DELAYED, State.DELAYED, State.QUEUED]
        for delay in (3660 * 86400 + 1.0, -1.0):
            with pytest.raises(InvalidInput, match="delay must be from 0 to"):
                await harness.enqueue(delay=delay)

    async def test_the_same_id_twice_is_refused_and_changes_nothing(self, harness: Harness) -> None:
        task = harness.new()
        await harness.store.apply(Commit(enqueues=[task]))
        with pytest.raises(StoreError):
            await harness.store.apply(Commit(enqueues=[harness.new("B"), harness.new(id=task.id)]))
        assert await harness.totals() == {("default", "A", State.QUEUED): 1}
        await harness.check_totals()

    async def test_one_bad_caller_does_not_fail_the_others(self, harness: Harness) -> None:
        """Concurrent callers may share a commit; whose data is refused is alone with it."""
        taken = await harness.enqueue()
        good = [harness.new("B") for _ in range(20)]
        commits = [Commit(enqueues=[task]) for task in [*good[:10], harness.new(id=taken), *good[10:]]]
        answers = await asyncio.gather(*(harness.store.apply(c) for c in commits), return_exceptions=True)
        assert [isinstance(answer, StoreError) for answer in answers] == [False] * 10 + [True] + [False] * 10
        assert await harness.totals() == {("default", "A", State.QUEUED): 1, ("default", "B", State.QUEUED): 20}

    async def test_again_does_not_enqueue_twice(self, harness: Harness) -> None:
        """The answer to the first try was lost: the producer sends the same ids again."""
        tasks = [harness.new(), harness.new(idempotency_key="k"), harness.new(delay=10.0)]
        await harness.store.apply(Commit(enqueues=tasks[:2]))
        applied = await harness.store.apply(Commit(enqueues=tasks), again=True)
        assert [answer.id for answer in applied.enqueued] == [task.id for task in tasks]
        assert not any(answer.conflict for answer in applied.enqueued)
        assert await harness.totals() == {("default", "A", State.QUEUED): 2, ("default", "A", State.DELAYED): 1}
        await harness.check_totals()

    async def test_again_does_not_bring_back_what_is_done(self, harness: Harness) -> None:
        task = harness.new()
        await harness.store.apply(Commit(enqueues=[task]))
        await harness.settle(await harness.claim_one(), Completed())
        await harness.store.apply(Commit(enqueues=[task]), again=True)
        assert await harness.state(task.id) is State.COMPLETED
        assert await harness.claim(5) == []
        await harness.check_totals()


class TestIdempotency:
    async def test_a_key_names_one_task(self, harness: Harness) -> None:
        first, second = harness.new(idempotency_key="k"), harness.new(idempotency_key="k")
        await harness.store.apply(Commit(enqueues=[first]))
        (answer,) = (await harness.store.apply(Commit(enqueues=[second]))).enqueued
        assert (answer.id, answer.created, answer.conflict) == (first.id, False, False)
        assert await get_task(harness.store, second.id) is None
        assert await harness.totals() == {("default", "A", State.QUEUED): 1}

    @pytest.mark.parametrize("ends", ["waits", "completed", "completed without a trace", "failed"])
    async def test_a_call_that_is_repeated_with_its_own_id_makes_one_task(self, harness: Harness, ends: str) -> None:
        """Its first answer was lost: the key names this very task, whether it still waits or has finished."""
        task = harness.new(idempotency_key="k")
        await harness.store.apply(Commit(enqueues=[task]))
        if ends != "waits":
            done = harness.decide(await harness.claim_one(), TERMINAL if ends == "failed" else Completed())
            done.keep = 0.0 if "without" in ends else None
            await harness.store.apply(Commit(transitions=[done]))
        before = await harness.totals()
        for again in (False, True, False):
            (answer,) = (await harness.store.apply(Commit(enqueues=[task]), again=again)).enqueued
            assert (answer.id, answer.created, answer.conflict) == (task.id, again, False)
        (answer,) = (
            await harness.store.apply(Commit(enqueues=[harness.new("B", id=task.id, idempotency_key="k")]))
        ).enqueued
        assert (answer.created, answer.conflict) == (False, True)
        assert await harness.totals() == before

    async def test_other_work_under_the_same_key_is_a_conflict(self, harness: Harness) -> None:
        """Of another kind, queue or payload, as values; not when it runs, nor before what."""
        same: TaskOptions = {"queue": "q", "payload": '{"a":1,"b":[1,2]}', "idempotency_key": "k"}
        first = await harness.enqueue(**same)
        for task, conflict in (
            (harness.new(**same | TaskOptions(priority=3)), False),
            (harness.new(**same | TaskOptions(delay=60.0)), False),
            (harness.new(**same | TaskOptions(payload='{"b": [1, 2], "a": 1}')), False),
            (harness.new(**same | TaskOptions(payload='{"a":1}')), True),
            (harness.new(**same | TaskOptions(payload=None)), True),
            (harness.new(**same | TaskOptions(queue="other")), True),
            (harness.new("B", **same), True),
        ):
            (answer,) = (await harness.store.apply(Commit(enqueues=[task]))).enqueued
            assert (answer.id, answer.created, answer.conflict) == (first, False, conflict), task
        assert (await harness.task(first)).payload == {"a": 1, "b": [1, 2]}
        assert await harness.totals() == {("q", "A", State.QUEUED): 1}

    async def test_duplicates_inside_one_list(self, harness: Harness) -> None:
        tasks = [
            harness.new(idempotency_key="k"),
            harness.new("B"),
            harness.new(idempotency_key="k"),
            harness.new(idempotency_key="k", payload='{"x":2}'),
            harness.new(idempotency_key="l"),
        ]
        answers = (await harness.store.apply(Commit(enqueues=tasks))).enqueued
        assert [answer.id for answer in answers] == [tasks[i].id for i in (0, 1, 0, 0, 4)]
        assert [answer.created for answer in answers] == [True, True, False, False, True]
        assert [answer.conflict for answer in answers] == [False, False, False, True, False]
        assert await harness.totals() == {("default", "A", State.QUEUED): 2, ("default", "B", State.QUEUED): 1}

    async def test_a_hundred_concurrent_callers_make_one_task(self, harness: Harness) -> None:
        other = await harness.another()
        stores = [harness.store, other] * 50
        answers = await asyncio.gather(
            *(store.apply(Commit(enqueues=[harness.new(idempotency_key="k")])) for store in stores)
        )
        enqueued = [answer.enqueued[0] for answer in answers]
        assert len({answer.id for answer in enqueued}) == 1
        assert sum(answer.created for answer in enqueued) == 1
        assert not any(answer.conflict for answer in enqueued)
        assert await harness.totals() == {("default", "A", State.QUEUED): 1}

    async def test_concurrent_lists_with_crossed_keys_do_not_block_each_other(self, harness: Harness) -> None:
        other = await harness.another()
        keys = [f"k{n}" for n in range(20)]
        lists = [[harness.new(idempotency_key=key) for key in (keys if n % 2 else reversed(keys))] for n in range(8)]
        await asyncio.gather(
            *(
                store.apply(Commit(enqueues=tasks))
                for tasks, store in zip(lists, [harness.store, other] * 4, strict=True)
            )
        )
        assert await harness.totals() == {("default", "A", State.QUEUED): 20}

    async def test_a_key_outlives_completion_and_cancellation(self, harness: Harness) -> None:
        done = await harness.enqueue(idempotency_key="done")
        await harness.settle(await harness.claim_one(), Completed())
        gone = await harness.cancelled(idempotency_key="gone")
        assert await harness.enqueue(idempotency_key="done") == done
        assert await harness.enqueue(idempotency_key="gone") == gone
        assert await harness.count(State.QUEUED) == 0

    async def test_keys_of_schedules_are_refused_and_change_nothing(self, harness: Harness) -> None:
        """Whoever took one in advance would keep that run from happening."""
        tasks = [harness.new(idempotency_key="k"), harness.new(idempotency_key="schedule:report:2030-01-01")]
        for given, again in ((tasks, False), (tasks[1:], False), (tasks, True)):
            with pytest.raises(InvalidInput, match="schedule:"):
                await harness.store.apply(Commit(enqueues=given), again=again)
        assert await harness.totals() == {}
        (answer,) = (await harness.store.apply(Commit(enqueues=[harness.new(idempotency_key="k")]))).enqueued
        assert answer.created
        assert await harness.enqueue(idempotency_key="my-schedule:1")

    async def test_a_schedule_uses_its_own_keys(self, harness: Harness) -> None:
        now = (await harness.store.overview()).now
        schedule = Schedule("report", "REPORT", "0 * * * *", "UTC", "coalesce", "cron", None, 0, 3, now)
        await harness.control(Declare("app", (schedule,)))
        task = harness.new("REPORT", queue="cron", idempotency_key=f"schedule:report:{now.isoformat()}")
        _, (row,) = await harness.store.due_schedules()
        fire = Fire("report", row.next_at, row.next_at + timedelta(hours=1), (task,))
        assert (await harness.store.apply(Commit(fires=[fire]))).fired == {"report"}
        assert (await harness.task(task.id)).idempotency_key == task.idempotency_key


class TestNames:
    async def known(self, harness: Harness, *names: str, most: int | None = None) -> None:
        await harness.store.apply(Commit(controls=[KnownNames(names, names, most)]))

    async def test_those_that_nobody_declared_are_bounded(self, harness: Harness) -> None:
        await self.known(harness, most=2)
        first = await harness.enqueue("A", queue="a", idempotency_key="first")
        await harness.enqueue("B", queue="b")
        counts = await harness.store.counts()
        both = [harness.new("B", queue="b"), harness.new("C", queue="b", idempotency_key="second")]
        for refused in ([harness.new("C", queue="c")], [harness.new("A", queue="b", delay=60)], both):
            with pytest.raises(TooManyNames, match="one more than 2 that no application has declared"):
                await harness.store.apply(Commit(enqueues=refused))
        assert await harness.store.counts() == counts
        # What is in use, and a key that is known, make none.
        again = harness.new("A", queue="a", idempotency_key="first")
        [answer] = (await harness.store.apply(Commit(enqueues=[again]))).enqueued
        assert (answer.id, answer.created, answer.conflict) == (first, False, False)
        await harness.enqueue_many(3, "A", queue="a")
        await self.known(harness, "C", "b")
        await harness.enqueue("C", queue="b", idempotency_key="second")  # nobody has the key of what was refused
        with pytest.raises(TooManyNames):
            await harness.enqueue("C", queue="c")  # nobody declared the queue
        await self.known(harness, most=3)
        await harness.enqueue("C", queue="c")

    async def test_the_bound_holds_also_for_many_at_once(self, harness: Harness) -> None:
        await self.known(harness, most=5)
        with pytest.raises(TooManyNames):
            await harness.store.apply(Commit(enqueues=[harness.new(f"K{n}", queue=f"q{n}") for n in range(6)]))
        await harness.store.upkeep("names")  # gives back what was counted for it
        await harness.store.apply(Commit(enqueues=[harness.new(f"K{n}", queue=f"q{n}") for n in range(5)]))
        callers = [harness.enqueue(f"L{n}", queue="l") for n in range(20)]
        refused = await asyncio.gather(*callers, return_exceptions=True)
        assert [type(one) for one in refused] == [TooManyNames] * 20
        await self.known(harness, *(f"L{n}" for n in range(20)), "l")
        await asyncio.gather(*(harness.enqueue(f"L{n}", queue="l") for n in range(20)))

    async def test_declared_ones_are_never_refused(self, harness: Harness) -> None:
        """Though no worker has announced them yet; they lapse like others, and count for nobody else."""
        await self.known(harness, most=1)
        await harness.enqueue("A", queue="a")
        new = [harness.new(f"K{n}", queue="k", idempotency_key=f"k{n}" if n < 2 else None) for n in range(4)]
        for task in new:
            task.declared = True
        await harness.store.apply(Commit(enqueues=new[:1]))
        await harness.store.apply(Commit(enqueues=new[1:]))
        await harness.store.apply(Commit(enqueues=[harness.new("K1", queue="k")]))
        await harness.store.upkeep("names")
        with pytest.raises(TooManyNames):
            await harness.enqueue("B", queue="b")
        counts = {(each.queue, each.kind): each.n for each in await harness.store.counts()}
        assert counts["k", "K1"] == 2
        # Beside what nobody declared, but is in use: nothing of that is new.
        mixed = [harness.new("A", queue="a"), harness.new("K9", queue="k")]
        mixed[1].declared = True
        await harness.store.apply(Commit(enqueues=mixed))
        mixed = [harness.new("B", queue="b"), harness.new("K8", queue="k")]
        mixed[1].declared = True
        with pytest.raises(TooManyNames, match="kind B in queue b"):
            await harness.store.apply(Commit(enqueues=mixed))

    async def test_totals_lapse_with_their_name(self, harness: Harness) -> None:
        await self.known(harness, "D", most=4)
        await harness.cancelled("D", queue="D")
        gone = [await harness.cancelled("B", queue="b"), await harness.cancelled("B", queue="b")]
        await harness.failed("F", queue="f")
        done = await harness.enqueue("C", queue="c")
        await harness.settle(await harness.claim_one(queues=("c",)), Completed())
        for _ in range(3):
            await harness.advance(43_260)
            for _ in range(3):  # SQLite relies on its clock after the second look
                await harness.store.upkeep("fold")
                await harness.store.upkeep("names")
        counts = {(each.queue, each.kind, each.state): each.n for each in await harness.store.counts() if each.n}
        assert counts == {("D", "D", State.CANCELLED): 1, ("f", "F", State.FAILED): 1, ("c", "C", State.COMPLETED): 1}
        assert await get_task(harness.store, done) is not None
        # Who is retried all the same counts as what it is, and takes nothing from what is no longer counted.
        assert await harness.operate(Event.REDRIVE, gone[0])
        await harness.store.upkeep("fold")
        left = {each.state: each.n for each in await harness.store.counts() if each.queue == "b" and each.n}
        assert left == {State.QUEUED: 1}

    async def test_a_handlers_attempts_go_before_what_a_producer_expects(self, harness: Harness) -> None:
        async def tried(kind: str, most: int, **more: bool) -> int:
            task = harness.new(kind, max_attempts=most)
            task.by_kind = more.get("by_kind", True)
            await harness.store.apply(Commit(enqueues=[task]))
            [several] = [harness.new(kind, max_attempts=most)]
            several.by_kind = task.by_kind
            await harness.store.apply(Commit(enqueues=[several, harness.new("OTHER", max_attempts=7)]))
            found = {(await harness.task(one.id)).max_attempts for one in (task, several)}
            assert len(found) == 1
            return found.pop()

        assert await tried("A", 3) == 3, "nobody has said anything yet"
        attempts = {"A": 2, "B": None}
        await harness.store.apply(Commit(controls=[KnownNames(("default",), ("A", "B"), None, attempts)]))
        assert [await tried("A", 3), await tried("A", 3, by_kind=False), await tried("B", 3)] == [2, 3, 3]
        await harness.store.apply(Commit(controls=[KnownNames(("default",), ("A",), None)]))
        assert await tried("A", 3) == 2, "a producer that declares the kind says nothing"
        await harness.store.apply(Commit(controls=[KnownNames(("default",), ("A",), None, {"A": None})]))
        assert await tried("A", 3) == 3

    async def test_unused_ones_are_given_back(self, harness: Harness) -> None:
        await self.known(harness, "D", most=2)
        await harness.enqueue("D", queue="D")
        waits = await harness.enqueue("A", queue="a")
        await harness.settle(await harness.running("B", queue="b"), Completed())
        day = 86_400
        for _ in range(3):
            await harness.advance(day / 2 + 60)
            for _ in range(3):  # SQLite relies on its clock after the second look
                await harness.store.upkeep("fold")
                await harness.store.upkeep("names")
        await harness.enqueue("C", queue="c")
        with pytest.raises(TooManyNames):
            await harness.enqueue("B", queue="b")
        await harness.enqueue("A", queue="a")  # a task of it waits
        await harness.enqueue("D", queue="D")
        assert await get_task(harness.store, waits) is not None
        if harness.reads:
            figures = await harness.store.figures()
            by_name = {(each.queue, each.kind): each.enqueued for each in figures.kinds}
            assert by_name["other", "other"] == 1 and ("b", "B") not in by_name and by_name["a", "A"] == 2
