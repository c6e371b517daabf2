"""What must not leave a task, a slot or the store behind: broken outcomes, cancelled workers, hanging handlers."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import pytest

from redrive import App, Bulk, Cancel, Context, Snooze, State
from redrive.errors import LeaseLost, StoreUnavailable
from redrive.kernel.commit import Commit
from redrive.kernel.failure import MAX_MESSAGE
from redrive.kernel.outcome import Verdict
from redrive.kernel.ports.store import ClaimRequest
from redrive.settings import Options
from redrive.stores.postgres import pool as postgres_pool
from redrive.worker.worker import Worker

from . import process_handlers
from .conftest import MakeApp, drain, ended, on_postgres, run_task, task_of, until, working


class _Response:
    status_code = 503
    headers = {"Retry-After": "Fri, 31 Dec 9999 23:59:59 -1200"}  # noqa: RUF012


class _Http(Exception):
    response = _Response()


class _Lazy(Exception):
    @property
    def response(self) -> None:
        raise RuntimeError("no response was received")


class _Unreadable(dict[str, int]):
    def items(self) -> Any:
        raise KeyError("lazy")


class _OddSequence(list[int]):
    def __len__(self) -> int:
        raise LookupError("no length")


# -- every attempt ends in an outcome --------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [_Http, _Lazy])
async def test_an_exception_that_cannot_be_looked_at_fails_the_attempt(app: App, error: type[Exception]) -> None:
    @app.task("T", max_attempts=1)
    async def t(ctx: Context) -> None:
        raise error("x")

    failed = await run_task(app, "T")
    assert (failed.state, failed.error_code) == (State.FAILED, "TASK_EXECUTION_FAILED")


@pytest.mark.parametrize("result", [_Unreadable(a=1), object()])
async def test_a_result_that_cannot_be_stored_does_not_undo_the_work(app: App, result: object) -> None:
    @app.task("T")
    async def t(ctx: Context) -> object:
        return result

    done = await run_task(app, "T")
    assert done.state is State.COMPLETED
    assert done.result["error"] == "RESULT_NOT_STORED"


@pytest.mark.parametrize("answer", [Verdict("mine"), Snooze(1, state=_Unreadable(a=1))])
async def test_a_verdict_that_means_nothing_fails_the_attempt(app: App, answer: Verdict) -> None:
    @app.task("T", max_attempts=1)
    async def t(ctx: Context) -> Any:
        return answer

    failed = await run_task(app, "T")
    assert (failed.state, failed.error_reason) == (State.FAILED, "no_outcome")


async def test_a_verdict_that_was_changed_afterwards_is_checked_again(app: App) -> None:
    @app.task("T", max_attempts=1)
    async def t(ctx: Context) -> Any:
        snooze = Snooze(1)
        snooze.seconds = float("nan")
        return snooze

    failed = await run_task(app, "T")
    assert failed.state is State.FAILED and "Snooze(seconds)" in (failed.error_message or "")


@pytest.mark.parametrize("reason", ["a\x00b", "lone \ud800", "long " * 1_000_000], ids=["nul", "lone", "long"])
async def test_any_reason_to_cancel_can_be_stored(app: App, reason: str) -> None:
    @app.task("T")
    async def t(ctx: Context) -> Any:
        return Cancel(reason)

    gone = await run_task(app, "T")
    assert gone.state is State.CANCELLED
    assert 0 < len(gone.error_message or "") <= MAX_MESSAGE


async def test_an_abandoned_attempt_is_forgotten_when_it_ends(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds its payload."""
    monkeypatch.setattr("redrive.worker.lease.STOP_GRACE_S", 0.1)
    release = threading.Event()

    @app.task("T", timeout=0.1, max_attempts=1)
    def t(ctx: Context) -> None:
        release.wait(60)

    task = await app.enqueue("T")
    async with working(app) as worker:
        await ended(app, task.id)
        assert len(worker.attempts._strays) == 1
        release.set()
        await until(lambda: not worker.attempts._strays)


async def test_a_bulk_answer_that_cannot_be_read_fails_its_tasks(app: App) -> None:
    @app.task("B", bulk=3, max_attempts=1)
    async def b(items: Bulk) -> Any:
        return _OddSequence([1, 2])

    tasks = await app.enqueue_many([("B", None), ("B", None)])
    async with working(app):
        found = [await ended(app, task.id) for task in tasks]
    assert [task.error_reason for task in found] == ["no_outcome", "no_outcome"]


# -- a run_worker() that is cut off ----------------------------------------------------------------------------------


async def _cut_off(running: asyncio.Task[None]) -> None:
    """The first cancellation asks for a stop with grace, the second does not wait for it."""
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def _slow_answer(store: Any, when: str) -> asyncio.Event:
    """Hold up the first cycle that settles something on its way, or the answer of the first that claims."""
    seen, original = asyncio.Event(), store.cycle

    async def cycle(commit: Any, want: Any, *, again: bool = False) -> Any:
        if seen.is_set():
            return await original(commit, want, again=again)
        if commit.transitions and when == "settle":
            seen.set()
            await asyncio.sleep(0.4)
        answer = await original(commit, want, again=again)
        if answer.claimed and when == "claim":
            seen.set()
            await asyncio.sleep(0.4)
        return answer

    store.cycle = cycle
    return seen


@pytest.mark.parametrize("when", ["settle", "claim"])
async def test_cancelling_the_worker_leaves_nothing_running(app: App, when: str) -> None:
    ran = []

    @app.task("T")
    async def t(ctx: Context) -> None:
        ran.append(ctx.task_id)

    store: Any = await app.store()
    seen = _slow_answer(store, when)
    task = await app.enqueue("T")
    running = asyncio.create_task(app.run_worker(Options()))
    await seen.wait()
    await _cut_off(running)
    found = await task_of(app, task.id)
    expected = (State.COMPLETED, 1, 1) if when == "settle" else (State.QUEUED, 0, 0)
    assert (found.state, found.attempt_count, len(ran)) == expected


async def test_cancelling_between_an_answer_and_its_taking_in_gives_the_tasks_back(app: App) -> None:
    """A busy worker sends its next call before it looks at what the last one claimed."""
    ran: list[Any] = []

    @app.task("T")
    async def t(ctx: Context) -> None:
        ran.append(ctx.task_id)

    store: Any = await app.store()
    original, claims = store.cycle, 0

    async def cycle(commit: Any, want: Any, *, again: bool = False) -> Any:
        nonlocal claims
        if claims == 1:  # the first claim is answered and nothing of it has begun
            for task in asyncio.all_tasks():  # as a loop does at its end
                if task.get_name() == "redrive-worker":
                    task.cancel()
        claims += want is not None
        return await original(commit, want, again=again)

    store.cycle = cycle
    tasks = await app.enqueue_many([("T", {})] * 600)
    running = asyncio.create_task(app.run_worker(Options(concurrency=400)))
    await asyncio.gather(running, return_exceptions=True)
    found = [await app.get(task.id) for task in tasks]
    assert claims >= 2 and not ran
    assert {(task.state, task.attempt_count) for task in found if task} == {(State.QUEUED, 0)}


async def test_a_settle_that_the_store_did_not_take_is_tried_again_after_the_cancellation(app: App) -> None:
    @app.task("T")
    async def t(ctx: Context) -> None: ...

    store: Any = await app.store()
    original, seen, failures = store.cycle, asyncio.Event(), 3

    async def cycle(commit: Any, want: Any, *, again: bool = False) -> Any:
        nonlocal failures
        if commit.transitions and failures:
            failures -= 1
            seen.set()
            await asyncio.sleep(0.05)
            raise StoreUnavailable("down")
        return await original(commit, want, again=again)

    store.cycle = cycle
    task = await app.enqueue("T")
    running = asyncio.create_task(app.run_worker(Options()))
    await seen.wait()
    await _cut_off(running)
    found = await task_of(app, task.id)
    assert found.state is State.COMPLETED


@on_postgres
async def test_a_claim_whose_caller_was_cancelled_is_given_back(app: App, url: str) -> None:
    app.declare("T")
    task = await app.enqueue("T")
    store: Any = await app.store()
    original, committed = store.pool.run, asyncio.Event()

    async def unanswered(work: Any, **options: Any) -> Any:
        found = await original(work, **options)
        committed.set()
        await asyncio.sleep(60)
        return found

    store.pool.run = unanswered
    claim = asyncio.create_task(store.cycle(Commit(), ClaimRequest("w", ("default",), 1, 60)))
    await committed.wait()
    claim.cancel()
    await asyncio.gather(claim, return_exceptions=True)
    store.pool.run = original
    claimed = await task_of(app, task.id)
    assert claimed.state is State.RUNNING
    await store.cycle(Commit(), None)
    found = await task_of(app, task.id)
    assert (found.state, found.attempt_count) == (State.QUEUED, 0)


# -- handlers' transactions ------------------------------------------------------------------------------------------


@on_postgres
async def test_many_handlers_enqueue_from_inside_their_transactions(make_app: MakeApp, url: str) -> None:
    app = make_app(lease_ms=3000)
    together = asyncio.Barrier(8)

    @app.task("T")
    async def t(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("select 1")
            await together.wait()
            await app.enqueue("CHILD")

    @app.task("CHILD", queue="other")
    async def child(ctx: Context) -> None: ...

    tasks = await app.enqueue_many([("T", None)] * 8)
    async with working(app, concurrency=10, queues=("default",)) as worker:
        found = [await ended(app, task.id) for task in tasks]
    assert {(task.state, task.attempt_count) for task in found} == {(State.COMPLETED, 1)}
    assert worker.health.lost == 0


@on_postgres
async def test_a_handler_does_not_wait_for_a_connection_for_ever(
    app: App, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_pool, "LEND_TIMEOUT_S", 0.2)
    store: Any = await app.store()
    store.pool._lendable, store.pool._lent = 1, asyncio.Semaphore(1)
    async with store.pool.transaction(lent=True):
        with pytest.raises(StoreUnavailable, match="connections for handlers' transactions"):
            async with store.pool.transaction(lent=True):
                pass


async def test_enqueueing_from_a_thread_inside_its_transaction_does_not_wait_for_itself(app: App, url: str) -> None:
    @app.task("T", max_attempts=1)
    def t(ctx: Context) -> None:
        with ctx.transaction():
            app.sync.enqueue("OTHER")

    app.declare("OTHER", queue="other")
    task = await app.enqueue("T")
    async with working(app, queues=("default",)):
        found = await ended(app, task.id)
    if url.startswith("sqlite"):
        assert found.state is State.FAILED
        assert "inside one of its own transactions" in (found.error_message or "")
    else:
        assert found.state is State.COMPLETED


async def test_a_thread_that_hangs_in_its_transaction_does_not_hold_up_the_store(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.worker.lease.STOP_GRACE_S", 0.3)
    app = make_app()
    release, said = threading.Event(), []
    opened: list[Any] = []

    @app.task("T", timeout=0.3, max_attempts=1)
    def t(ctx: Context) -> None:
        try:
            with ctx.transaction() as tx:
                opened.append(tx)
                release.wait(60)
                tx.execute("select 1")
        except Exception as error:
            said.append(error)
            raise

    task = await app.enqueue("T")
    try:
        async with working(app) as worker:
            failed = await ended(app, task.id)
            assert (failed.state, failed.error_reason) == (State.FAILED, "timeout")
            app.declare("OTHER", queue="other")
            await asyncio.wait_for(app.enqueue("OTHER"), 30)
            if hasattr(opened[0].transaction, "is_closed"):
                assert opened[0].transaction.is_closed()
            release.set()
            await until(lambda: said)
            await until(lambda: worker.health.late)
    finally:
        release.set()
    assert worker.health.abandoned == 1


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_handler_that_hangs_behind_its_transaction_does_not_keep_its_slot(
    app: App, monkeypatch: pytest.MonkeyPatch, threaded: bool
) -> None:
    monkeypatch.setattr("redrive.worker.lease.STOP_GRACE_S", 0.3)
    release = threading.Event()

    async def hang(ctx: Context) -> None:
        async with ctx.transaction():
            pass
        await asyncio.sleep(3600)

    def hang_in_a_thread(ctx: Context) -> None:
        with ctx.transaction():
            pass
        release.wait(60)

    app.task("T", timeout=1.0)(hang_in_a_thread if threaded else hang)

    @app.task("O")
    async def o(ctx: Context) -> None: ...

    first = await app.enqueue("T")
    try:
        async with working(app, concurrency=1) as worker:
            assert (await ended(app, first.id)).state is State.COMPLETED
            second = await app.enqueue("O")
            assert (await ended(app, second.id)).state is State.COMPLETED
            assert worker.health.abandoned == (1 if threaded else 0)
            assert worker.health.late == (0 if threaded else 1)
            assert not worker.runs.trailing
    finally:
        release.set()


async def test_a_second_transaction_of_a_completed_task_is_refused(app: App) -> None:
    raised = []

    @app.task("T")
    async def t(ctx: Context) -> None:
        async with ctx.transaction():
            pass
        try:
            async with ctx.transaction():
                pass
        except LeaseLost as error:
            raised.append(error)

    await app.enqueue("T")
    await drain(app)
    assert len(raised) == 1


# -- processes -------------------------------------------------------------------------------------------------------


async def test_the_start_of_a_process_is_not_the_handlers_time(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "redrive.task")
    app.task("QUICK", isolation="process", timeout=3, max_attempts=1)(process_handlers.quick)
    app.task("ENDLESS", isolation="process", timeout=1, max_attempts=1)(process_handlers.endless)
    app.task("DECLINE", isolation="process")(process_handlers.decline)
    app.task("POLL", isolation="process")(process_handlers.poll)
    kinds = ("QUICK", "ENDLESS", "DECLINE", "POLL")
    tasks = await app.enqueue_many([(kind, None) for kind in kinds])
    async with working(app):
        quick, endless, decline, poll = [await ended(app, task.id) for task in tasks]
    assert (quick.state, quick.result) == (State.COMPLETED, "done")
    assert quick.execution_ms is not None and quick.execution_ms < process_handlers.SLOW_IMPORT * 1000
    assert (endless.state, endless.error_reason) == (State.FAILED, "timeout")
    assert (decline.error_code, decline.attempt_count) == ("CARD_DECLINED", 1)
    assert (poll.state, poll.result) == (State.COMPLETED, "2")
    [record] = [record for record in caplog.records if record.name == "redrive.task"]
    assert (record.getMessage(), record.levelname) == ("halfway 50", "INFO")
    assert vars(record)["task_id"] == str(quick.id)


# -- the end of a worker ---------------------------------------------------------------------------------------------


async def test_a_worker_that_found_nothing_left_is_marked_as_stopped(app: App) -> None:
    worker = await drain(app)
    rows = (await (await app.store()).overview()).workers
    assert [(row.id, row.stopping) for row in rows] in ([], [(worker.id, True)])
    assert worker.stopping


async def test_the_patience_of_a_stop_begins_with_the_stop(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.worker.settling.LAST_SETTLE_PATIENCE_S", 15)
    app, begun, done = make_app(grace_ms=3000), [], []

    @app.task("T")
    async def t(ctx: Context) -> None:
        begun.append(1)
        await asyncio.sleep(1)
        done.append(1)

    await app.enqueue("T")
    store: Any = await app.store()
    gone, tried = [False], []

    def unreliable(call: Any) -> Any:
        async def made(*args: Any, **more: Any) -> Any:
            if not gone[0]:
                return await call(*args, **more)
            tried.append(1)
            raise StoreUnavailable("down")

        return made

    store.cycle, store.tick, store.renew = unreliable(store.cycle), unreliable(store.tick), unreliable(store.renew)
    worker: Worker = app.worker(store, Options(concurrency=2))
    running = asyncio.create_task(worker.run())
    await until(lambda: begun)  # what has not begun is handed back at once
    gone[0] = True
    worker.state.outage.begin(StoreUnavailable("down"))
    worker.state.outage._since = time.monotonic() - 60
    worker.stop()
    await until(lambda: done)
    tried.clear()
    await until(lambda: tried)  # to settle it
    assert not running.done()
    gone[0] = False
    await asyncio.wait_for(running, 60)
    assert worker.health.completed == 1


async def test_a_lease_counts_from_before_the_claim_was_sent(app: App) -> None:
    renewed = []

    @app.task("T")
    async def t(ctx: Context) -> None:
        renewed.append(worker.runs[ctx.task_id].renewed_at)

    store: Any = await app.store()
    original, asked = store.cycle, []

    async def cycle(commit: Any, want: Any, *, again: bool = False) -> Any:
        began = time.monotonic()
        answer = await original(commit, want, again=again)
        await asyncio.sleep(0.1)
        if answer.claimed:
            asked.append(began)
        return answer

    store.cycle = cycle
    await app.enqueue("T")
    worker = app.worker(store, Options(stop_when_empty=True))
    await worker.run()
    assert renewed[0] <= asked[0]
