"""The one service of the faces: roles and names are checked by it, whoever calls."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from redrive.console.regions import overview
from redrive.errors import InvalidInput, NotAllowed, UnknownKind, UnknownQueue
from redrive.handlers.registry import Declared, Registry
from redrive.kernel.commit import Commit, KnownNames, Target
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Action
from redrive.kernel.ports.store import Query
from redrive.kernel.reads import MANY_ROWS
from redrive.kernel.task import State
from redrive.ops import access, executor
from redrive.ops.access import Caller, Role
from redrive.ops.doctor import examine
from redrive.ops.inspect import Stats
from redrive.ops.operator import Operator
from redrive.ops.operator.session import Policy, Session
from redrive.stores import reads
from redrive_kit.conformance.harness import Harness
from tests.conformance.harness_sqlite import SqliteHarness
from tests.ops.making import fail


def operator(harness: Harness, role: Role = Role.OPERATOR, name: str = "ann", **policy: Any) -> Operator:
    registry = Registry()
    registry.declare(Declared("ELSEWHERE", "far"))
    return Operator(Session(harness.store, registry, Policy(**policy), Caller(name, role)))


async def test_a_viewer_looks_and_does_nothing(harness: Harness) -> None:
    [task_id] = await fail(harness)
    viewer = operator(harness, Role.VIEWER)
    assert (await viewer.failures.list()).total == 1
    assert (await viewer.tasks.show(task_id)).timeline.task.id == task_id
    refused = [
        viewer.tasks.retry(task_id),
        viewer.tasks.cancel([task_id]),
        viewer.tasks.pause([task_id]),
        viewer.tasks.enqueue("A"),
        viewer.failures.retry([task_id]),
        viewer.failures.forget([task_id]),
        viewer.failures.retry_matching(FailureFilter(kind="A")),
        viewer.operations.begin(Action.RETRY),
        viewer.operations.preview(Action.RETRY),
        viewer.causes.annotate("abcd", note="x"),
        viewer.control.pause("queue", "default"),
        viewer.control.set_limit("A", concurrency=1),
        viewer.audit.prune(older_than_days=1),
        viewer.tokens.create("bob", "admin"),
        viewer.tokens.list(),
        viewer.approvals.approve("x"),
        viewer.executors.claim("w", ["default"], 1, 60),
    ]
    for action in refused:
        with pytest.raises(NotAllowed, match="ann is viewer"):
            await action


async def test_every_token_is_compared_and_listed(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "READ_AT_ONCE", 2)
    admin = operator(harness, Role.ADMIN)
    names = ["ann", "bob", "cid", "dan", "eve"]
    for name in names:
        await admin.tokens.create(name, "viewer")
    assert [one.name for one in await admin.tokens.list()] == names[::-1]
    for name in ("ann", "EVE"):
        with pytest.raises(InvalidInput, match="there is an active token"):
            await admin.tokens.create(name, "viewer")
    elsewhere = Operator(
        Session(
            harness.store,
            Registry(),
            Policy(),
            Caller("ann", Role.ADMIN),
            "insights",
            connections=("default", "insights"),
        )
    )
    with pytest.raises(InvalidInput, match="on the default connection"):
        await elsewhere.tokens.create("fay", "viewer")


async def test_what_only_an_administrator_may(harness: Harness) -> None:
    mere = operator(harness)
    refused = [
        mere.operations.begin(Action.PURGE, FailureFilter(queue="default")),
        mere.control.set_limit("A", concurrency=1),
        mere.audit.prune(older_than_days=1),
        mere.tokens.create("bob", "admin"),
        mere.tokens.revoke("1a2b3c4d5e6f"),
    ]
    for action in refused:
        with pytest.raises(NotAllowed, match="this needs admin"):
            await action


async def test_names_are_checked_and_declared_ones_known(harness: Harness) -> None:
    own = operator(harness)
    assert (await own.control.pause("kind", "ELSEWHERE", "not now")).changed
    assert (await own.control.pause("queue", "far", "not now")).changed
    with pytest.raises(UnknownKind):
        await own.control.pause("kind", "ELSEWERE")
    with pytest.raises(UnknownQueue):
        await own.failures.retry_matching(FailureFilter(queue="fra"))
    assert {queue.name: queue.paused is not None for queue in (await own.control.queues()).items}["far"]


async def test_what_a_pause_holds_back_shows_as_paused(harness: Harness) -> None:
    """By whatever it is paused: a queue, a kind or a group, one task or all; and it is found and counted so."""
    own = operator(harness)
    by_queue = await harness.enqueue_many(3, "A", queue="far")
    by_kind = await harness.enqueue_many(2, "SHIP")
    by_group = await harness.enqueue("A", group="g")
    ready = await harness.enqueue_many(2, "A")
    later = await harness.enqueue("SHIP", delay=60)
    for target, name in ((Target.QUEUE, "far"), (Target.KIND, "SHIP"), (Target.GROUP, "g")):
        await harness.hold(target, name)
    held = {*by_queue, *by_kind, by_group}

    async def ids(*states: State, **which: Any) -> set[UUID]:
        found, before = set[UUID](), None
        while True:
            page = await own.tasks.list(Query(states, limit=2, before=before, **which))
            assert all(task.state in states for task in page.tasks)
            found |= {task.id for task in page.tasks}
            before = page.next_before
            if before is None:
                return found

    assert await ids(State.PAUSED) == held
    assert await ids(State.QUEUED) == set(ready)
    assert await ids(State.QUEUED, State.DELAYED) == {*ready, later}
    assert await ids(State.PAUSED, kind="A") == {*by_queue, by_group}
    assert await ids(State.PAUSED, queue="default") == {*by_kind, by_group}
    assert await ids(State.QUEUED, kind="SHIP") == set()
    for task_id, by in ((by_queue[0], "queue:far"), (by_kind[0], "kind:SHIP"), (by_group, "group:g")):
        story = await own.tasks.show(task_id)
        assert (story.timeline.task.state, story.timeline.task.paused_by) == (State.PAUSED, by)
        assert "paused" in {reason.code for reason in story.why}
        assert (await own.tasks.get(task_id)).paused_by == by
        assert "paused" in {reason.code for reason in await own.tasks.why(await own.tasks.get(task_id))}
    view = "redrive_v_tasks" if isinstance(harness, SqliteHarness) else "redrive.v_tasks"
    rows = await harness.sql(f"select id, paused_by from {view} where paused_by is not null")
    assert {UUID(str(task_id)) for task_id, _ in rows} == held, "SQL says the same beside the state of the row"
    assert {by for _, by in rows} == {"queue:far", "kind:SHIP", "group:g"}
    stats = await own.health.stats()
    # Totals know no groups: those of one count when a claim has met them.
    assert (stats.totals()["queued"], stats.totals()["paused"], stats.totals()["delayed"]) == (3, 5, 1)
    queues = {queue.name: queue.totals for queue in (await own.control.queues()).items}
    assert (queues["far"]["queued"], queues["far"]["paused"]) == (0, 3)
    kinds = {kind.name: kind.totals for kind in (await own.control.kinds()).items}
    assert (kinds["SHIP"]["queued"], kinds["SHIP"]["paused"], kinds["SHIP"]["delayed"]) == (0, 2, 1)
    refused = await own.tasks.resume([by_kind[0]])
    assert refused.skipped == {by_kind[0]: "its kind SHIP is paused: redrive resume --kind SHIP"}
    assert (await own.tasks.cancel([by_kind[1]])).done == [by_kind[1]]
    await harness.hold(Target.KIND, "SHIP", False)
    assert (await own.tasks.get(by_kind[0])).state is State.QUEUED
    await harness.check_totals()


async def test_an_executor_gets_what_is_due_with_its_first_claim(harness: Harness) -> None:
    """Of a queue that no worker serves."""
    task_id = await harness.enqueue(queue="outside", delay=60)
    assert await executor.claim(harness.store, "farm", ["outside"], 1, 60) == []
    await harness.advance(61)
    (claimed,) = await executor.claim(harness.store, "farm", ["outside"], 1, 60)
    assert claimed.id == task_id


async def test_an_executor_is_alive_to_everybody_or_to_nobody(harness: Harness) -> None:
    own = operator(harness)
    await executor.claim(harness.store, "outside", ["default"], 1, 60)
    await harness.advance(60)
    [worker] = await own.workers.list()
    assert worker.alive
    assert "no_worker" not in {finding.code for finding in await examine(harness.store)}
    assert {queue.name: queue.workers for queue in (await own.control.queues()).items}["default"] == 1
    await harness.advance(timedelta(hours=1).total_seconds())
    assert [worker.alive for worker in await own.workers.list()] == [False]
    assert "no_worker" in {finding.code for finding in await examine(harness.store)}


async def test_a_token_s_name_cannot_be_talked_away(harness: Harness) -> None:
    own = operator(harness)
    assert own.named("bob").caller.name == "bob"
    token = Operator(Session(harness.store, Registry(), Policy(), Caller("ann", Role.OPERATOR, "1a2b")))
    assert token.named("bob").caller.name == "ann"


async def test_many_names_are_added_up_beside_the_loop(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is served by the same process does not wait for twenty thousand of them."""
    names = tuple(f"K{n}" for n in range(MANY_ROWS))
    await harness.store.apply(Commit(controls=[KnownNames(names, names, 10)]))
    await harness.store.apply(Commit(enqueues=[harness.new(name, queue=name) for name in names]))
    seen = set[str]()

    def watch(home: Any, name: str) -> None:
        real = getattr(home, name)

        def watched(*args: Any) -> Any:
            seen.add(f"{name} {threading.current_thread() is threading.main_thread()}")
            return real(*args)

        monkeypatch.setattr(home, name, watched)

    watch(reads, "counts_of")
    watch(Stats, "by")
    found = await operator(harness).control.traffic()
    shown = await overview.look(operator(harness))
    assert len(found.kinds) >= len(found.queues) >= MANY_ROWS and shown.more_kinds >= MANY_ROWS - overview.MOST_KINDS
    assert seen == {"counts_of False", "by False"}
