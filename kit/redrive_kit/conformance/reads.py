"""Reads: filters, paging, members of a join, and everything about one task. Documents come as text and only up to a
length, so that a page costs what it shows, whatever tasks carry."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from redrive.ids import new_id
from redrive.kernel.audit import Audit, AuditFilter
from redrive.kernel.commit import Commit
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.feature import Need
from redrive.kernel.joins import NewJoin
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Completed
from redrive.kernel.payload import CUT, JsonText
from redrive.kernel.ports.reads import get_task
from redrive.kernel.ports.store import MOST_ENTRIES, CauseQuery
from redrive.kernel.reads import Query
from redrive.kernel.task import State, Task
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


SHORT, LONG = json.dumps({"to": "ünï"}), json.dumps({"text": "x" * 50_000})
DOCUMENTS = ("payload", "progress", "memo", "result")


def read(task: Task) -> Task:
    """A task of a page, with its documents taken apart."""

    def value(name: str) -> Any:
        found = getattr(task, name)
        assert found is None or type(found) is JsonText
        return None if found is None else json.loads(found)

    return replace(task, **{name: value(name) for name in DOCUMENTS})


class TestPages:
    async def test_a_page_holds_what_a_list_holds(self, harness: Harness) -> None:
        await one_of_each(harness)
        whole = await harness.store.find(Query())
        paged = await harness.store.find(Query(documents=1000))
        assert [read(task) for task in paged] == [replace(task, memo=None) for task in whole]
        by_id = await harness.store.get_many([task.id for task in whole], documents=1000)
        assert list(by_id.values()) == paged
        failed = [task for task in paged if task.state is State.FAILED]
        assert await harness.store.failed(FailureFilter(), limit=10, documents=1000) == failed

    async def test_long_documents_are_left_out(self, harness: Harness) -> None:
        await harness.failed(payload=SHORT)
        task_id = await harness.failed(payload=LONG)
        for documents, wanted in ((1000, CUT), (0, CUT), (100_000, None), (2**30, None)):
            [task] = (await harness.store.get_many([task_id], documents=documents)).values()
            found = await harness.store.find(Query(documents=documents))
            [latest, _] = await harness.store.failed(FailureFilter(), limit=5, newest=True, documents=documents)
            [letter, _] = await harness.store.dead_letters(Query(documents=documents))
            timeline = await harness.store.timeline(task_id, documents=documents)
            assert timeline is not None
            shown = [
                task.payload,
                found[0].payload,
                latest.payload,
                letter.payload,
                timeline.task.payload,
                timeline.dead_letters[0].payload,
            ]
            for payload in shown:
                assert payload is wanted if wanted is not None else json.loads(payload) == json.loads(LONG)

    async def test_what_is_not_there_is_not_left_out(self, harness: Harness) -> None:
        task_id = await harness.enqueue(payload=None)
        [task] = (await harness.store.get_many([task_id], documents=0)).values()
        assert (task.payload, task.progress, task.error_message, task.error_stack) == (None, None, None, None)

    async def test_messages_are_left_out_with_the_rest(self, harness: Harness) -> None:
        task_id = await harness.failed()
        [task] = (await harness.store.get_many([task_id], documents=0)).values()
        message: Any = task.error_message
        assert message is CUT
        assert task.error_code == (await harness.task(task_id)).error_code
        assert task.error_summary == (await harness.task(task_id)).error_summary

    async def test_results(self, harness: Harness) -> None:
        done = await harness.running()
        await harness.settle(done, Completed(LONG))
        [task] = (await harness.store.get_many([done.id], documents=1000)).values()
        assert task.result is CUT
        [task] = (await harness.store.get_many([done.id], documents=60_000)).values()
        assert json.loads(task.result) == json.loads(LONG)

    async def test_audit_rows(self, harness: Harness) -> None:
        after = {"hashes": ["x" * 64] * 100}
        await harness.store.apply(Commit(audits=[Audit("ann", "TEST", None, None, None, {"a": 1}, after)]))
        [row] = await harness.store.audit(AuditFilter(), limit=5, documents=1000)
        assert (row.before, row.after) == (JsonText(row.before), CUT) and json.loads(row.before) == {"a": 1}

    async def test_a_timeline_ends_with_the_latest(self, harness: Harness) -> None:
        task_id = await harness.failed()
        rows = [Audit("ann", "TEST", str(n), task_id, None, None, None) for n in range(MOST_ENTRIES + 3)]
        await harness.store.apply(Commit(audits=rows))
        timeline = await harness.store.timeline(task_id)
        assert timeline is not None
        told = [row.reason for row in timeline.audit if row.action == "TEST"]
        assert len(timeline.audit) == MOST_ENTRIES and told == [str(n) for n in range(3, MOST_ENTRIES + 3)]
        assert len(timeline.attempts) == 1


async def members(harness: Harness) -> tuple[str, dict[State, list[UUID]]]:
    """A join with members in every state but delayed and paused, beside tasks that are none of it."""
    join = NewJoin(new_id(), open=True)
    await harness.store.apply(Commit(joins=[join]))
    found = dict[State, list[UUID]]()
    for state, outcome in ((State.COMPLETED, Completed()), (State.FAILED, TERMINAL)):
        found[state] = await harness.enqueue_many(3, "A", join=join.id)
        for claimed in await harness.claim(3):
            await harness.settle(claimed, outcome)
    found[State.CANCELLED] = await harness.enqueue_many(2, "A", join=join.id)
    assert await harness.operate(Event.CANCEL, *found[State.CANCELLED])
    found[State.RUNNING] = await harness.enqueue_many(2, "B", join=join.id)
    await harness.claim(2)
    found[State.QUEUED] = await harness.enqueue_many(4, "B", join=join.id)
    await harness.enqueue_many(3, "A")
    return str(join.id), found


class TestMembers:
    @pytest.fixture(autouse=True)
    def _capable(self, harness: Harness) -> None:
        harness.needs(Need.JOINS)

    async def test_by_state(self, harness: Harness) -> None:
        join, found = await members(harness)
        for state, ids in found.items():
            listed = await harness.store.find(Query((state,), join=join))
            assert {task.id for task in listed} == set(ids) and {task.state for task in listed} == {state}
        listed = await harness.store.find(Query((State.FAILED, State.COMPLETED), join=join))
        assert {task.id for task in listed} == {*found[State.FAILED], *found[State.COMPLETED]}

    async def test_in_pages_and_by_kind(self, harness: Harness) -> None:
        join, found = await members(harness)
        everything = sorted((task_id for ids in found.values() for task_id in ids), reverse=True)
        listed, before = list[UUID](), None
        while page := await harness.store.find(Query(join=join, limit=5, before=before)):
            listed += [task.id for task in page]
            before = page[-1].id
        assert listed == everything
        ids = {*found[State.QUEUED], *found[State.RUNNING]}
        assert {task.id for task in await harness.store.find(Query(join=join, kind="B"))} == ids
        assert await harness.store.find(Query(join=str(new_id()))) == []

    async def test_its_failures(self, harness: Harness) -> None:
        await harness.failed()
        join, found = await members(harness)
        which = FailureFilter(join=join)
        assert [one.id for one in await harness.store.failed_ids(which, limit=9)] == found[State.FAILED]
        assert await harness.store.count_failed(which) == 3
        assert (await harness.store.failed_end(which, cancelled=True))[1] == 0
        [failed] = await harness.store.failed(which, limit=1)
        assert which.unlike(failed) is None and FailureFilter(join=str(new_id())).unlike(failed) is not None
