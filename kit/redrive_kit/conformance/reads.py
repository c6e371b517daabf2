"""Reads: filters, paging, and everything about one task."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from redrive.ids import new_id
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Completed
from redrive.kernel.ports.reads import get_task
from redrive.kernel.ports.store import CauseQuery, Query
from redrive.kernel.task import State
from redrive_kit.conformance.harness import TERMINAL, Harness, failing


async def one_of_each(harness: Harness) -> dict[State, UUID]:
    made = {State.FAILED: await harness.failed(), State.CANCELLED: await harness.cancelled()}
    done = await harness.running()
    await harness.settle(done, Completed())
    made[State.COMPLETED] = done.id
    made[State.RUNNING] = (await harness.running()).id
    made[State.DELAYED] = await harness.enqueue(delay=60.0)
    made[State.PAUSED] = await harness.enqueue()
    await harness.operate(Event.PAUSE, made[State.PAUSED])
    made[State.QUEUED] = await harness.enqueue()
    return made


class TestReads:
    async def test_an_unknown_id(self, harness: Harness) -> None:
        assert await get_task(harness.store, new_id()) is None
        assert await harness.store.timeline(new_id()) is None

    async def test_a_store_is_known_by_itself(self, harness: Harness) -> None:
        """Also where another process has it open, by another spelling of its URL."""
        another = await harness.another()
        one, other = await another.diagnose(brief=True), await harness.store.diagnose(brief=True)
        assert one.identity and one.identity == other.identity

    async def test_since_when_each_kind_waits(self, harness: Harness) -> None:
        """Of what could run; kinds behind the first 100 of their queue are not looked for."""
        first = await harness.enqueue("A")
        await harness.advance(3600)
        await harness.enqueue_many(99, "A")
        behind = await harness.enqueue("B")
        alone = await harness.enqueue("B", queue="elsewhere")
        await harness.enqueue("C", delay=60.0)
        await harness.failed("D", queue="third")
        times = {"A": (await harness.task(first)).created_at, "B": (await harness.task(alone)).created_at}
        oldest = (await harness.store.figures()).oldest_kinds
        assert oldest.keys() == times.keys()
        assert all(at and abs(oldest[kind] - at) < timedelta(seconds=1) for kind, at in times.items())
        await harness.operate(Event.CANCEL, first)
        since = (await harness.store.figures()).oldest_kinds["B"]
        made = (await harness.task(behind)).created_at
        assert made and abs(since - made) < timedelta(seconds=1)

    async def test_every_state_is_found(self, harness: Harness) -> None:
        made = await one_of_each(harness)
        assert {state: await harness.state(task_id) for state, task_id in made.items()} == {s: s for s in State}
        for state, task_id in made.items():
            assert [task.id for task in await harness.store.find(Query(states=(state,)))] == [task_id]
        some = (State.COMPLETED, State.FAILED, State.QUEUED)
        assert {task.state for task in await harness.store.find(Query(states=some))} == set(some)
        everything = await harness.store.find(Query())
        assert [task.id for task in everything] == sorted(made.values(), reverse=True)

    async def test_find_and_get_agree(self, harness: Harness) -> None:
        await one_of_each(harness)
        for task in await harness.store.find(Query()):
            assert await get_task(harness.store, task.id) == task

    async def test_many_at_once(self, harness: Harness) -> None:
        made = list((await one_of_each(harness)).values())
        asked = [made[3], new_id(), *made[::-1], UUID(int=7)]
        found = await harness.store.get_many(asked)
        assert list(found) == list(dict.fromkeys(id for id in asked if id in made))
        assert list(found.values()) == [await get_task(harness.store, task_id) for task_id in found]
        assert await harness.store.get_many([]) == {}

    @pytest.mark.parametrize("live", [True, False], ids=["live", "history"])
    async def test_filters(self, harness: Harness, live: bool) -> None:
        fields: dict[str, Any] = {"queue": "mail", "group": "g", "scope": "s", "trace_id": "t"}
        wanted = {field: await harness.enqueue(**{field: value}) for field, value in fields.items()}
        fields["kind"], wanted["kind"] = "B", await harness.enqueue("B")
        if not live:
            for task in await harness.claim(9, queues=("default", "mail")):
                await harness.settle(task, Completed())
        for field, value in fields.items():
            assert [task.id for task in await harness.store.find(Query(**{field: value}))] == [wanted[field]]
            nothing: dict[str, Any] = {field: "nothing"}
            assert await harness.store.find(Query(**nothing)) == []

    async def test_filters_on_errors(self, harness: Harness) -> None:
        locked = await harness.failed()
        claimed = await harness.running(max_attempts=1)
        await harness.settle(claimed, failing("disk full"))
        done = await harness.running()
        await harness.settle(done, Completed())
        full = await harness.task(claimed.id)
        find = harness.store.find
        assert [t.id for t in await find(Query(error_code="TASK_PRECONDITION_FAILED"))] == [locked]
        assert [t.id for t in await find(Query(error_reason="unknown_exception"))] == [claimed.id]
        assert [t.id for t in await find(Query(fingerprint=full.error_fingerprint))] == [claimed.id]
        assert await find(Query(error_code="TASK_PRECONDITION_FAILED", kind="B")) == []

    async def test_pages_join_without_gaps_or_repeats(self, harness: Harness) -> None:
        ids = await harness.enqueue_many(25)
        await harness.settle_many([(task, Completed()) for task in await harness.claim(9)])
        await harness.settle_many([(task, TERMINAL) for task in await harness.claim(5)])
        pages: list[list[UUID]] = []
        before = None
        while page := await harness.store.find(Query(limit=10, before=before)):
            pages.append([task.id for task in page])
            before = page[-1].id
        assert [len(page) for page in pages] == [10, 10, 5]
        assert [i for page in pages for i in page] == sorted(ids, reverse=True)

    async def test_dead_letters_by_filter_and_page(self, harness: Harness) -> None:
        ids = [await harness.failed("A" if n % 2 else "B", scope=f"s{n}", group="g", trace_id="t") for n in range(6)]
        letters = await harness.store.dead_letters(Query())
        assert [letter.task_id for letter in letters] == list(reversed(ids))
        page = await harness.store.dead_letters(Query(limit=4, before=letters[1].id))
        assert [letter.id for letter in page] == [letter.id for letter in letters[2:6]]
        search = harness.store.dead_letters
        assert [letter.task_id for letter in await search(Query(kind="A"))] == [ids[5], ids[3], ids[1]]
        assert [letter.task_id for letter in await search(Query(scope="s4"))] == [ids[4]]
        assert len(await search(Query(error_code="TASK_PRECONDITION_FAILED", group="g", trace_id="t"))) == 6
        assert await search(Query(error_code="NO_SUCH")) == []
        assert len(await search(Query(fingerprint=letters[0].error_fingerprint))) == 6

    async def test_audit_by_action_and_actor(self, harness: Harness) -> None:
        one, two = await harness.enqueue_many(2)
        await harness.operate(Event.PAUSE, one, actor="ann")
        await harness.operate(Event.PAUSE, two, actor="bob")
        await harness.operate(Event.RESUME, one, actor="bob")
        audit = harness.audit
        assert [(r.action, r.actor) for r in await audit(10)] == [
            ("TASK_RESUME", "bob"),
            ("TASK_PAUSE", "bob"),
            ("TASK_PAUSE", "ann"),
        ]
        assert [r.task_id for r in await audit(10, action="TASK_PAUSE")] == [two, one]
        assert [r.task_id for r in await audit(10, actor="bob")] == [one, two]
        assert [r.task_id for r in await audit(10, action="TASK_PAUSE", actor="ann")] == [one]
        assert len(await audit(2)) == 2

    async def test_causes_are_limited_and_latest_first(self, harness: Harness) -> None:
        for cause in ("one", "two", "three"):
            await harness.settle(await harness.running(max_attempts=1), failing(cause))
            await harness.advance(1)
        latest = await harness.store.causes(CauseQuery(2))
        assert [cause.message for cause in latest] == ["three", "two"]
        place = (latest[-1].last_seen, latest[-1].fingerprint)
        assert [cause.message for cause in await harness.store.causes(CauseQuery(2, before=place))] == ["one"]
        # One that comes back while somebody turns pages is not met twice, and hides nobody.
        await harness.settle(await harness.running(max_attempts=1), failing("one"))
        await harness.settle(await harness.running(max_attempts=1), failing("four"))
        assert await harness.store.causes(CauseQuery(2, before=place)) == []
        assert {group.message for group in await harness.store.causes(CauseQuery(9))} == {"one", "two", "three", "four"}
        await harness.store.upkeep("fold")
        assert {group.message for group in await harness.store.causes(CauseQuery(9))} == {"one", "two", "three", "four"}
