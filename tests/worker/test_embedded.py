"""A worker inside an application: beside its own work, stopped with grace, and loud when it cannot work."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from redrive import App, Context, RedriveError, State
from redrive.errors import InvalidInput, InvalidTransition, SchemaError, StoreUnavailable
from redrive.kernel.ports.store import Store
from redrive.settings import load_settings
from redrive.worker.readiness import LastSeen, readiness

from .conftest import MakeApp, until


class Gate:
    """A kind whose handler begins, and ends when it is let through."""

    def __init__(self, app: App) -> None:
        self.begun, self.open = asyncio.Event(), asyncio.Event()

        @app.task("GATED", max_attempts=1)
        async def gated(ctx: Context) -> str:
            self.begun.set()
            await self.open.wait()
            return "all of it"


async def _state(app: App, task_id: Any) -> tuple[State, int]:
    found = await app.get(task_id)
    assert found is not None
    return found.state, found.attempt_count


# -- beside other work ------------------------------------------------------------------------------------------------


async def test_a_block_runs_a_worker_and_leaves_when_what_runs_has_finished(app: App) -> None:
    gate = Gate(app)
    async with app.worker(concurrency=2) as worker:
        task = await app.enqueue("GATED")
        await gate.begun.wait()
        asyncio.get_running_loop().call_later(0.05, gate.open.set)
    assert await _state(app, task.id) == (State.COMPLETED, 1)
    assert worker.health.completed == 1 and not worker.runs


async def test_a_block_that_fails_stops_the_worker_and_fails(make_app: MakeApp) -> None:
    app = make_app(grace_ms=0)
    gate = Gate(app)
    task = await app.enqueue("GATED")
    with pytest.raises(LookupError, match="mine"):
        async with app.worker():
            await gate.begun.wait()
            raise LookupError("mine")
    assert await _state(app, task.id) == (State.QUEUED, 0)


async def test_a_store_that_cannot_be_used_is_said_at_the_door(
    empty_postgres_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    app = App(settings=load_settings(url=empty_postgres_url, log_format="json"))
    entered = False
    with pytest.raises(SchemaError, match="redrive migrate"):
        async with app.worker():
            entered = True
    assert not entered
    assert capfd.readouterr().err == ""  # it neither started nor stopped; whoever enters hears the error
    await app.close()


async def test_a_store_that_cannot_be_reached_is_waited_for_in_the_background() -> None:
    app = App(settings=load_settings(url="postgresql://nobody@127.0.0.1:1/none", log_format="off"))
    async with app.worker() as worker:
        assert worker.health.store_error is not None
    await app.close()


async def test_a_worker_that_dies_says_so_and_the_block_ends_with_its_error(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise LookupError("a bug of ours")

    store: Any = await app.store()
    original, store.cycle = store.cycle, broken
    with pytest.raises(LookupError, match="a bug of ours"):
        async with app.worker() as worker:
            await until(lambda: _any(r for r in caplog.records if getattr(r, "event", "") == "worker.died"))
            store.cycle = original
            assert isinstance(worker.died, LookupError)
            assert "the worker died (LookupError); the log says of what" in (await readiness(app, worker))["reasons"]
    assert [record.levelno for record in caplog.records if record.name == "redrive.worker"] == [logging.ERROR]


@pytest.mark.parametrize("helper", ["leases", "ticker"])
async def test_a_worker_without_its_heartbeat_dies(app: App, helper: str) -> None:
    async def broken() -> None:
        raise LookupError("a bug of ours")

    worker = app.worker()
    getattr(worker, helper).run = broken
    with pytest.raises(LookupError, match="a bug of ours"):
        async with worker:
            await until(lambda: _any([worker.died]))


async def _any(found: Any) -> bool:
    return any(found)


# -- cancelled --------------------------------------------------------------------------------------------------------


async def test_a_cancellation_lets_what_runs_finish(app: App) -> None:
    gate = Gate(app)
    task, waiting = await app.enqueue("GATED"), await app.enqueue("GATED")
    running = asyncio.create_task(app.run_worker())
    await gate.begun.wait()
    running.cancel()
    await asyncio.sleep(0)
    gate.open.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await _state(app, task.id) == (State.COMPLETED, 1)
    assert await _state(app, waiting.id) == (State.QUEUED, 0), "nothing was claimed after it"


async def test_beyond_the_grace_what_runs_is_handed_back(make_app: MakeApp) -> None:
    app = make_app(grace_ms=50)
    gate = Gate(app)
    task = await app.enqueue("GATED")
    running = asyncio.create_task(app.worker().run())
    await gate.begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await _state(app, task.id) == (State.QUEUED, 0)


@pytest.mark.parametrize("how", ["run", "block"])
async def test_a_second_cancellation_does_not_wait_for_the_grace(make_app: MakeApp, how: str) -> None:
    app = make_app(grace_ms=600_000)
    gate = Gate(app)
    task = await app.enqueue("GATED")

    async def block() -> None:
        async with app.worker():
            await asyncio.Event().wait()

    running = asyncio.create_task(block() if how == "block" else app.run_worker())
    await gate.begun.wait()
    for _ in range(10):  # a block passes the first one on, and the worker in it hears the next; more change nothing
        running.cancel()
        await asyncio.sleep(0.01)
    await asyncio.wait([running], timeout=20)
    assert running.cancelled()
    assert await _state(app, task.id) == (State.QUEUED, 0)


def test_a_loop_that_ends_with_a_worker_in_it_hands_back(tmp_path: Any) -> None:
    """Nobody awaits the worker: asyncio.run cancels whatever it finds, once and all at once."""
    app = App(settings=load_settings(url=f"sqlite:///{tmp_path}/x.db", log_format="off"))

    async def main() -> Any:
        gate = Gate(app)
        task = await app.enqueue("GATED")
        main.kept = asyncio.create_task(app.run_worker())  # type: ignore[attr-defined]
        await gate.begun.wait()
        return task.id

    task_id = asyncio.run(main())
    assert asyncio.run(_state(app, task_id)) == (State.QUEUED, 0)
    asyncio.run(app.close())


# -- what it is told --------------------------------------------------------------------------------------------------


async def test_options_by_name_are_those_of_the_command(app: App) -> None:
    Gate(app)
    named = app.worker(queues="high, default", concurrency=3, max_jobs=5, timeout=9)
    assert named.options.queues == ("high", "default")
    assert (named.options.concurrency, named.options.max_jobs, named.options.timeout) == (3, 5, 9)
    assert app.worker(queues=["one"]).options.queues == ("one",)
    left_out = app.worker(concurrency=None)
    assert (left_out.options.queues, left_out.options.concurrency) == (app.queues(), app.settings.concurrency)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"concurency": 3}, "did you mean concurrency"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"queues": []}, "names no queue"),
        ({"queues": "a b"}, "queue"),
    ],
)
async def test_options_that_cannot_be_used_are_refused(app: App, given: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        app.worker(**given)


def test_without_an_event_loop_it_says_where_to_make_it(postgres_url: str) -> None:
    with pytest.raises(InvalidInput, match="event loop"):
        App(postgres_url).worker()


async def test_a_worker_runs_once(app: App) -> None:
    worker = app.worker(stop_when_empty=True)
    await worker.run()
    with pytest.raises(InvalidTransition, match="has run already"):
        await worker.run()
    entered = False
    with pytest.raises(InvalidTransition, match="has run already"):
        async with worker:
            entered = True
    assert not entered


async def test_options_are_given_one_way(app: App) -> None:
    from redrive.settings import Options

    with pytest.raises(RedriveError, match="not both"):
        app.worker(None, Options(), concurrency=3)


async def test_when_the_store_last_answered_is_told_without_a_worker(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = LastSeen()
    before = (await readiness(app, None, seen))["dependencies"][0]

    async def away() -> Store:
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(app, "store", away)
    after = (await readiness(app, None, seen))["dependencies"][0]
    assert (before["ok"], after["ok"]) == (True, False)
    assert after["lastSuccess"] == before["lastSuccess"] is not None
