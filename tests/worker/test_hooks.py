"""What an application's hooks are told, and that none of them harms anybody."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from dataclasses import FrozenInstanceError
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Cancel, Context, Snooze, State, TaskEvent
from redrive.errors import ConfigError, StoreUnavailable
from redrive.handlers.events import EVENTS
from redrive.kernel.commit import Commit
from redrive.kernel.machine import Lease, Policy, settle
from redrive.kernel.ports.store import ClaimRequest
from redrive.observe.metrics import HOOKS_DROPPED
from redrive.worker import hooks as hooks_module
from redrive.worker.hooks import HookedReport
from redrive.worker.measure import measure
from tests.worker.conftest import MakeApp, drain, ended, until, working

PAGE = Path(__file__).parents[2] / "docs/tracing.md"


def listen(app: App, *names: str) -> list[TaskEvent]:
    """Returns a list that hooks, plain and asynchronous ones in turn, write into."""
    told: list[TaskEvent] = []
    for place, name in enumerate(names):
        if place % 2:

            @app.on(name)
            async def hear(event: TaskEvent) -> None:
                await asyncio.sleep(0)
                told.append(event)
        else:
            app.on(name)(told.append)
    return told


def test_a_hook_that_cannot_be_called_is_refused_where_it_is_written() -> None:
    app = App("sqlite:///:memory:")

    def none() -> None: ...

    def two(ctx: object, event: TaskEvent) -> None: ...

    def by_name(*, event: TaskEvent) -> None: ...

    async def later() -> None: ...

    for wrong in (none, two, by_name, later):
        with pytest.raises(
            ConfigError, match=rf"hook .*{wrong.__name__}.* of 'failed' cannot be called with one event"
        ):
            app.on("failed")(wrong)
    assert "failed" not in app.registry.hooks

    class Counts:
        def __call__(self, event: TaskEvent, by: int = 1) -> None: ...

    for right in (lambda event: None, lambda *events: None, Counts(), [].append, print, partial(two, None)):
        app.on("failed")(right)


def declare_ends(app: App) -> None:
    """Kinds that fail, wait and are cancelled."""

    @app.task("BAD", max_attempts=2)
    async def bad(ctx: Context) -> None:
        raise ConnectionError("not now")

    @app.task("LATER")
    async def later(ctx: Context) -> Any:
        return Snooze(3600)

    @app.task("AWAY")
    async def away(ctx: Context) -> Any:
        raise Cancel("not wanted")


async def test_each_end_is_told_once_with_its_details(app: App) -> None:
    told = listen(app, *EVENTS)

    @app.task("GOOD", public=["order"])
    async def good(ctx: Context, order: int, card: str) -> None: ...

    declare_ends(app)
    task = await app.enqueue("GOOD", {"order": 7, "card": "of-ann"}, group="g", scope="s", trace_id="t")
    failing = await app.enqueue("BAD")
    await app.enqueue("LATER")
    await app.enqueue("AWAY")
    await drain(app)
    while (await app.get(failing.id)).state is not State.FAILED:  # type: ignore[union-attr]
        await drain(app)
    assert sorted((event.name, event.kind) for event in told) == [
        ("cancelled", "AWAY"),
        ("completed", "GOOD"),
        ("dead", "BAD"),
        ("failed", "BAD"),
        ("retried", "BAD"),
        ("snoozed", "LATER"),
    ]
    by_name = {event.name: event for event in told}
    done = by_name["completed"]
    assert (done.task_id, done.queue, done.attempt, done.group, done.scope, done.trace_id) == (
        *(task.id, "default", 1, "g", "s", "t"),
    )
    assert done.public == {"order": 7} and "of-ann" not in repr(done)
    assert done.duration_ms is not None and done.error_code is None and done.exception is None
    retried, failed = by_name["retried"], by_name["failed"]
    assert retried.retry_in is not None and failed.retry_in is None
    assert (retried.attempt, failed.attempt, failed.dead_reason) == (1, 2, "max_attempts_exceeded")
    assert failed.error_reason == "connect" and failed.error_message == "ConnectionError: not now"
    assert isinstance(failed.exception, ConnectionError)
    with pytest.raises(FrozenInstanceError):
        failed.kind = "OTHER"  # type: ignore[misc]


async def test_every_event_there_is_is_told_by_somebody(make_app: MakeApp) -> None:
    app = make_app(grace_ms=0)
    told = listen(app, *EVENTS)
    began = asyncio.Event()

    declare_ends(app)

    @app.task("HANGS")
    async def hangs(ctx: Context) -> None:
        began.set()
        await asyncio.sleep(3600)

    @app.task("LOSES")
    async def loses(ctx: Context) -> None:
        """Is settled by somebody else before it ends."""
        held = await app.get(ctx.task_id)
        assert held is not None and held.lease_token is not None
        moved = settle(Lease(held.id, held.lease_token, 1, 1), Snooze(3600), Policy(), 0)
        await (await app.store()).apply(Commit(transitions=[moved]))

    died = await app.enqueue("SYSTEM_HEALTH_CHECK")
    await (await app.store()).cycle(Commit(), ClaimRequest("gone", ("default",), 1, 0.01))
    await asyncio.sleep(0.05)
    for kind in ("BAD", "LATER", "AWAY", "LOSES"):
        await app.enqueue(kind)
    async with working(app) as worker:
        worker._recover()
        await ended(app, died.id)
        await app.enqueue("HANGS")
        await asyncio.wait_for(began.wait(), 20)
        await until(lambda: {"dead", "lost"} <= {event.name for event in told})
    assert {event.name for event in told} == {*EVENTS}, "an event that nobody tells, or that nobody may listen to"


def test_the_page_lists_every_event() -> None:
    rows = re.findall(r"^\| (`.+?) \|", PAGE.read_text(encoding="utf-8").partition("| event |")[2], re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert listed == [*EVENTS]


async def test_it_is_told_after_the_commit(app: App) -> None:
    states: list[State | None] = []

    @app.task("GOOD")
    async def good(ctx: Context) -> None:
        async with ctx.transaction():
            assert not states

    @app.on("completed")
    async def look(event: TaskEvent) -> None:
        found = await app.get(event.task_id)  # on the loop of the hooks: a connection of its own
        states.append(found and found.state)

    await app.enqueue("GOOD")
    await drain(app)
    assert states == [State.COMPLETED]


async def test_whoever_recovers_is_told(app: App) -> None:
    told = listen(app, "recovered", "failed")

    @app.task("IMPORT", max_attempts=1, public=["order"])
    async def run(ctx: Context, order: int, card: str) -> None: ...

    task = await app.enqueue("IMPORT", {"order": 7, "card": "of-ann"}, group="g", scope="s", trace_id="t")
    store = await app.store()
    cycle = await store.cycle(Commit(), ClaimRequest("gone", ("default",), 1, 0.01))
    assert len(cycle.claimed) == 1
    await asyncio.sleep(0.05)
    async with working(app) as worker:
        worker._recover()
        await ended(app, task.id)
        await until(lambda: len(told) == 2)  # a worker that is stopped right after the move tells nobody
    assert {(event.name, event.kind, event.error_reason) for event in told} == {
        ("recovered", "IMPORT", "lease_expired"),
        ("failed", "IMPORT", "lease_expired"),
    }
    for event in told:
        assert (event.group, event.scope, event.trace_id, event.public) == ("g", "s", "t", {"order": 7})


async def test_labels_that_cannot_be_read_keep_nobody_from_being_told(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = listen(app, "recovered")
    task = await app.enqueue("SYSTEM_HEALTH_CHECK", max_attempts=1, scope="s")
    store = await app.store()
    await store.cycle(Commit(), ClaimRequest("gone", ("default",), 1, 0.01))
    await asyncio.sleep(0.05)

    async def away(*args: Any, **more: Any) -> Any:
        raise StoreUnavailable("it went away")

    async with working(app) as worker:
        with monkeypatch.context() as patch:
            patch.setattr(type(store), "get_many", away)
            worker._recover()
            await until(lambda: bool(told))
        await ended(app, task.id)
    assert [(event.name, event.scope) for event in told] == [("recovered", None)]


async def test_one_that_raises_or_hangs_harms_nobody(make_app: MakeApp, caplog: pytest.LogCaptureFixture) -> None:
    app = make_app(hook_timeout_ms=500)
    release, heard = threading.Event(), []

    @app.task("GOOD")
    async def good(ctx: Context) -> None: ...

    @app.on("completed")
    def raises(event: TaskEvent) -> None:
        raise ValueError("a hook's own")

    @app.on("completed")
    def hangs(event: TaskEvent) -> None:
        release.wait(60)

    @app.on("completed")
    async def waits(event: TaskEvent) -> None:
        await asyncio.sleep(60)

    @app.on("completed")
    async def hears(event: TaskEvent) -> None:
        heard.append(event.task_id)

    tasks = await app.enqueue_many([("GOOD", None)] * 6)
    with caplog.at_level(logging.WARNING, "redrive.hooks"):
        worker = await drain(app, concurrency=10)
    assert worker.health.completed == len(tasks)
    said = [record.getMessage() for record in caplog.records]
    assert sum("raises of 'completed' raised ValueError" in line for line in said) == 1, "once a minute"
    assert sum("hangs of 'completed' took longer than" in line for line in said) == 1
    assert heard, "the others are told"
    release.set()


@pytest.mark.parametrize("plain", [True, False])
async def test_many_calls_that_hang_keep_no_other_hook_from_hearing(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, plain: bool
) -> None:
    monkeypatch.setattr(hooks_module, "LAST_WORDS_S", 0.2)
    app = make_app(hook_timeout_ms=60_000)
    release, heard = threading.Event(), []

    def hangs(event: TaskEvent) -> None:
        release.wait(60)

    async def waits(event: TaskEvent) -> None:
        await asyncio.sleep(60)

    app.on("completed")(hangs if plain else waits)

    @app.task("BAD", max_attempts=1)
    async def bad(ctx: Context) -> None:
        raise ValueError

    @app.on("failed")
    def hears(event: TaskEvent) -> None:
        heard.append(event.task_id)

    await app.enqueue_many([("SYSTEM_HEALTH_CHECK", None)] * 100)
    async with working(app) as worker:
        await until(lambda: worker.health.completed == 100)
        task = await bad.enqueue()
        await until(lambda: heard)
        release.set()
    assert heard == [task.id]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
async def test_one_that_would_end_the_process_ends_no_hook(app: App, error: type[BaseException]) -> None:
    heard = []

    @app.task("GOOD")
    async def good(ctx: Context) -> None: ...

    @app.on("completed")
    def exits(event: TaskEvent) -> None:
        raise error

    @app.on("completed")
    async def exits_too(event: TaskEvent) -> None:
        raise error

    @app.on("completed")
    async def hears(event: TaskEvent) -> None:
        heard.append(event.task_id)

    tasks = await app.enqueue_many([("GOOD", None)] * 6)
    assert (await drain(app)).health.completed == len(tasks)
    assert sorted(heard) == sorted(task.id for task in tasks)


async def test_what_does_not_fit_is_dropped_and_counted(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks_module, "MOST_WAITING", 5)
    monkeypatch.setattr(hooks_module, "LAST_WORDS_S", 0.2)

    @app.on("completed")
    async def blocks(event: TaskEvent) -> None:
        time.sleep(1.0)  # its whole event loop, which is not the worker's

    tasks = await app.enqueue_many([("SYSTEM_HEALTH_CHECK", None)] * 50)
    worker = await drain(app, concurrency=50)
    assert worker.health.completed == len(tasks)
    assert worker.hooks is not None and worker.hooks.dropped >= 40
    assert all(len(line.waiting) <= 5 for line in worker.hooks._lines), "each line has its bound"
    assert measure(worker)[HOOKS_DROPPED.name][()] == worker.hooks.dropped


async def test_without_hooks_there_is_no_thread_and_no_other_report(app: App) -> None:
    before = {one.ident for one in threading.enumerate() if one.name == "redrive-hooks"}  # of other tests
    await app.enqueue("SYSTEM_HEALTH_CHECK")
    worker = await drain(app)
    assert not isinstance(worker.report, HookedReport) and not worker.attempts._runner.keeps_errors
    assert not {one.ident for one in threading.enumerate() if one.name == "redrive-hooks"} - before


async def test_events_nobody_listens_to_are_not_made(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    told = listen(app, "failed")
    await app.enqueue("SYSTEM_HEALTH_CHECK")
    worker = await drain(app)
    assert worker.hooks is not None and worker.hooks._thread is None and not told


async def test_a_wrong_name_is_refused_with_the_nearest(app: App) -> None:
    with pytest.raises(ConfigError, match="there is no event 'faild'") as refused:
        app.on("faild")
    assert "did you mean 'failed'?" in str(refused.value.hint)
    with pytest.raises(TypeError, match="named by a str, not 5; events are: completed, retried"):
        app.on(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must be a function"):
        app.on("failed")("print")  # type: ignore[type-var]


async def test_hooks_are_told_when_the_store_was_away_meanwhile(app: App) -> None:
    """An answer that was lost is asked for again: told once, when it is known."""
    told = listen(app, "completed")
    store = await app.store()
    cycle, lost = store.cycle, []

    async def losing(commit: Commit, want: Any, *, again: bool = False) -> Any:
        found = await cycle(commit, want, again=again)
        if commit.transitions and not lost:
            lost.append(commit)
            from redrive.errors import StoreUnavailable

            raise StoreUnavailable("the answer was lost")
        return found

    store.cycle = losing  # type: ignore[method-assign]
    task = await app.enqueue("SYSTEM_HEALTH_CHECK")
    async with working(app):
        await ended(app, task.id)

        await until(lambda: told)
    assert lost and [event.task_id for event in told] == [task.id]
