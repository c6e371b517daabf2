"""Workers and circuits: tasks whose other side is down wait without using attempts, and go on when it is back."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from redrive import App, Bulk, Circuit, Context, Snooze, State
from redrive.kernel.circuit import CircuitRow, SetCircuit, probe_now
from redrive.kernel.commit import Commit

from .conftest import MakeApp, drain, ended, task_of, until, working

LONG = Circuit("far", failures=3, delay=3600, max_delay=3600)


class Far:
    """The other side: down until it is not."""

    def __init__(self) -> None:
        self.down = True
        self.calls = 0

    def ask(self) -> None:
        self.calls += 1
        if self.down:
            raise ConnectionRefusedError("nobody there")


async def circuit(app: App) -> CircuitRow:
    (row,) = await (await app.store()).circuits()
    return row


async def is_open(app: App) -> bool:
    return any(row.open for row in await (await app.store()).circuits())


async def probe(app: App) -> None:
    await (await app.store()).apply(Commit(controls=[probe_now(await circuit(app))]))


async def test_tasks_wait_without_using_attempts_and_all_go_on_after_one_probe(app: App) -> None:
    far = Far()

    @app.task("CALL", max_attempts=2, circuit=LONG)
    async def call(ctx: Context) -> None:
        far.ask()

    tasks = [await app.enqueue("CALL") for _ in range(30)]
    async with working(app, concurrency=1):
        await until(lambda: is_open(app))
        row = await circuit(app)
        assert far.calls == 3
        assert row.reason is not None and row.reason.startswith("connect: ConnectionRefusedError")
        assert (row.kinds, row.opened) == (("CALL",), 1)

        await probe(app)
        await until(lambda: _probes_failed(app, 1))
        assert far.calls == 4

        far.down = False
        await probe(app)
        done = [await ended(app, task.id) for task in tasks]
    assert {task.state for task in done} == {State.COMPLETED}
    assert sorted(task.attempt_count for task in done) == [1] * 28 + [2] * 2, "the two that failed before it opened"
    row = await circuit(app)
    assert not row.open and far.calls == 3 + 1 + 30


async def _probes_failed(app: App, n: int) -> bool:
    return (await circuit(app)).failed_probes == n


async def test_what_was_under_way_when_it_opened_uses_no_attempt_either(app: App) -> None:
    entered, go = asyncio.Semaphore(0), asyncio.Event()

    @app.task("CALL", max_attempts=1, circuit=LONG)
    async def call(ctx: Context) -> None:
        entered.release()
        await go.wait()
        raise TimeoutError("slow")

    tasks = [await app.enqueue("CALL") for _ in range(5)]
    async with working(app):
        for _ in tasks:
            await entered.acquire()
        go.set()
        await until(lambda: is_open(app))
        await until(lambda: _none_runs(app, tasks))
    found = [await app.get(task.id) for task in tasks]
    states = [task.state for task in found if task is not None]
    assert states.count(State.FAILED) == 2, "those before the third, which opened it"
    assert states.count(State.QUEUED) == 3
    assert {task.attempt_count for task in found if task is not None and task.state is State.QUEUED} == {0}


async def _none_runs(app: App, tasks: list[Any]) -> bool:
    found = [await app.get(task.id) for task in tasks]
    return all(task is not None and task.state is not State.RUNNING for task in found)


async def test_kinds_that_share_a_name_share_it_and_others_go_on(app: App) -> None:
    far = Far()

    @app.task("CALL", circuit=LONG)
    async def call(ctx: Context) -> None:
        far.ask()

    @app.task("POLL", circuit=LONG)
    async def poll(ctx: Context) -> None: ...

    @app.task("LOCAL")
    async def local(ctx: Context) -> None: ...

    for _ in range(3):
        await app.enqueue("CALL")
    await drain(app, concurrency=1)
    assert await is_open(app)
    waiting, other = await app.enqueue("POLL"), await app.enqueue("LOCAL")
    await drain(app)
    found = await app.get(waiting.id), await app.get(other.id)
    assert [task.state for task in found if task is not None] == [State.QUEUED, State.COMPLETED]


async def test_a_handler_may_say_that_the_other_side_is_down(app: App) -> None:
    asked = 0

    @app.task("POLL", max_attempts=1, circuit=LONG)
    async def poll(ctx: Context) -> None:
        nonlocal asked
        asked += 1
        raise Snooze(0, state={"n": asked}, down="the provider is in maintenance")

    task = await app.enqueue("POLL")
    async with working(app):
        await until(lambda: is_open(app))
        await until(lambda: _none_runs(app, [task]))
    found = await task_of(app, task.id)
    assert (found.state, found.attempt_count) == (State.QUEUED, 0)
    assert (await circuit(app)).reason == "the provider is in maintenance"
    assert asked == 3


async def test_answers_keep_it_closed(app: App) -> None:
    @app.task("CALL", max_attempts=9, circuit=LONG)
    async def call(ctx: Context) -> None:
        if ctx.attempt in (3, 6):
            raise LookupError("an answer, if not the one that was hoped for")
        raise ConnectionRefusedError("nobody there")

    task = await app.enqueue("CALL")
    async with working(app):
        await until(lambda: is_open(app))
    found = await task_of(app, task.id)
    assert found.attempt_count == 8, "the ninth in a row of three opened it, and is not counted"


async def test_a_bulk_call_counts_once(app: App) -> None:
    far = Far()

    @app.task("SEND", bulk=10, max_attempts=5, circuit=LONG)
    async def send(bulk: Bulk) -> None:
        far.ask()

    for _ in range(10):
        await app.enqueue("SEND")
    async with working(app, concurrency=10):
        await until(lambda: is_open(app))
    assert far.calls >= 3


async def test_a_worker_that_did_not_see_it_open_closes_it_by_its_probe(make_app: MakeApp) -> None:
    far = Far()
    first, second = make_app(), make_app()
    for app in (first, second):

        @app.task("CALL", circuit=LONG)
        async def call(ctx: Context) -> None:
            far.ask()

    for _ in range(5):
        await first.enqueue("CALL")
    await drain(first, concurrency=1)
    assert await is_open(first)
    far.down = False
    await probe(second)
    await drain(second, concurrency=1)
    assert not await is_open(second)


async def test_a_probe_that_completes_in_its_own_transaction_closes_it(app: App) -> None:
    @app.task("CALL", circuit=LONG)
    async def call(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    store = await app.store()
    await store.apply(Commit(controls=[SetCircuit("far", 0, ("CALL",), True, 0, "connect", "w9", 0, 1)]))
    await app.enqueue("CALL")
    await drain(app)
    assert not await is_open(app)


async def test_a_probe_that_somebody_cancels_says_nothing(app: App) -> None:
    began = asyncio.Event()

    @app.task("CALL", circuit=LONG)
    async def call(ctx: Context) -> None:
        began.set()
        await asyncio.sleep(60)

    store = await app.store()
    await store.apply(Commit(controls=[SetCircuit("far", 0, ("CALL",), True, 0, "connect", "w9", 0, 1)]))
    task = await app.enqueue("CALL")
    async with working(app):
        await began.wait()
        await app.cancel(task.id)
        assert (await ended(app, task.id)).state is State.CANCELLED
    assert await is_open(app)


async def test_a_thread_that_hangs_counts_too(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.worker.lease.STOP_GRACE_S", 0.1)

    @app.task("CALL", timeout=0.1, max_attempts=1, circuit=Circuit(failures=1, delay=3600, max_delay=3600))
    def call(ctx: Context) -> None:
        time.sleep(2)

    await app.enqueue("CALL")
    async with working(app):
        await until(lambda: is_open(app))


async def nothing_is_overdue(*_: object) -> None:
    """Stands for the duty that looks for items behind open circuits, whatever kinds there are."""


async def test_kinds_without_a_circuit_pay_nothing(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app()

    @app.task("LOCAL", max_attempts=1)
    async def local(ctx: Context, n: int) -> None:
        if n % 2:
            raise ConnectionRefusedError("nobody there")

    for n in range(10):
        await local.enqueue(n=n)
    store = await app.store()
    asked: list[str] = []
    monkeypatch.setattr(store, "circuits", lambda: asked.append("circuits"), raising=False)
    monkeypatch.setattr("redrive.batches.remote.upkeep.end_overdue", nothing_is_overdue)
    await drain(app)
    assert asked == []
    assert await app.get((await local.enqueue(n=0)).id) is not None


async def test_a_busy_kind_that_is_well_asks_the_store_once(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task("CALL", circuit=LONG)
    async def call(ctx: Context) -> None: ...

    for _ in range(50):
        await app.enqueue("CALL")
    store = await app.store()
    asked: list[str] = []
    real = store.circuits

    async def counted() -> list[CircuitRow]:
        asked.append("circuits")
        return await real()

    monkeypatch.setattr(store, "circuits", counted, raising=False)
    monkeypatch.setattr("redrive.batches.remote.upkeep.end_overdue", nothing_is_overdue)
    await drain(app, concurrency=1)
    assert asked == ["circuits"]


async def test_one_that_somebody_else_changed_is_read_again(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    far = Far()

    @app.task("CALL", max_attempts=1, circuit=LONG)
    async def call(ctx: Context) -> None:
        far.ask()

    for _ in range(4):
        await app.enqueue("CALL")
    store = await app.store()
    real, raced = store.apply, False

    async def race(commit: Commit, **options: Any) -> Any:
        nonlocal raced
        if not raced and any(isinstance(one, SetCircuit) and one.open for one in commit.controls):
            raced = True
            row = await circuit(app)
            other = SetCircuit("far", row.version, row.kinds, True, 3600, "theirs", "w9", 0, 1)
            await real(Commit(controls=[other]))
        return await real(commit, **options)

    monkeypatch.setattr(store, "apply", race, raising=False)
    await drain(app, concurrency=1)
    row = await circuit(app)
    assert raced and (row.actor, row.opened) == ("w9", 1)
    assert far.calls == 3
