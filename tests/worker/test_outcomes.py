"""What a handler gives back, and what becomes of its task."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from pydantic import BaseModel

from redrive import App, Bulk, Cancel, Context, Fail, Retry, Snooze, State
from redrive.kernel.reads import CauseQuery
from redrive.ops import inspect
from redrive.worker.config import build_of

from .conftest import MakeApp, drain, ended, run_task, task_of, working


async def test_a_value_completes(app: App) -> None:
    @app.task("DOUBLE")
    async def double(ctx: Context, n: int) -> dict[str, int]:
        return {"n": n * 2}

    task = await double.enqueue(n=4)
    await drain(app)
    done = await task_of(app, task.id)
    assert (done.state, done.result, done.attempt_count) == (State.COMPLETED, {"n": 8}, 1)
    assert done.execution_ms is not None and done.payload is None


async def test_an_exception_is_retried_until_attempts_are_used_up(app: App) -> None:
    @app.task("BROKEN", max_attempts=3)
    async def broken(ctx: Context) -> None:
        raise ConnectionError(f"attempt {ctx.attempt}")

    task = await app.enqueue("BROKEN")
    async with working(app):
        failed = await ended(app, task.id)
    assert (failed.state, failed.attempt_count, failed.error_code) == (State.FAILED, 3, "TASK_EXECUTION_FAILED")
    assert (failed.error_reason, failed.failure_type) == ("connect", "network")
    story = await inspect.show(await app.store(), task.id)
    assert [attempt.message for attempt in story.attempts] == [f"ConnectionError: attempt {n}" for n in (1, 2, 3)]
    assert [letter.reason for letter in story.dead_letters] == ["max_attempts_exceeded"]
    [cause] = await (await app.store()).causes(CauseQuery(10))
    assert cause.count == 3


async def test_a_retry_that_succeeds_leaves_its_failures_in_the_timeline(app: App) -> None:
    @app.task("FLAKY", max_attempts=5)
    async def flaky(ctx: Context) -> str:
        if ctx.attempt < 3:
            raise TimeoutError("slow")
        return "done"

    task = await app.enqueue("FLAKY")
    async with working(app):
        done = await ended(app, task.id)
    assert (done.state, done.attempt_count, done.result) == (State.COMPLETED, 3, "done")
    story = await inspect.show(await app.store(), task.id)
    assert [(a.attempt, a.reason) for a in story.attempts] == [(1, "timeout"), (2, "timeout")]


@pytest.mark.parametrize("raised", [True, False])
async def test_fail_ends_it_at_once_with_its_code(app: App, raised: bool) -> None:
    @app.task("DECLINED", max_attempts=5)
    async def declined(ctx: Context) -> Fail:
        verdict = Fail("CARD_DECLINED", "no money")
        if raised:
            raise verdict
        return verdict

    task = await app.enqueue("DECLINED")
    await drain(app)
    failed = await task_of(app, task.id)
    assert (failed.state, failed.attempt_count, failed.error_code) == (State.FAILED, 1, "CARD_DECLINED")
    [letter] = (await inspect.show(await app.store(), task.id)).dead_letters
    assert letter.reason == "non_retryable"


async def test_our_own_exceptions_in_a_handler_are_tried_again_with_their_message(app: App) -> None:
    app.declare("OTHER", queue="other")

    @app.task("OURS", max_attempts=2)
    async def ours(ctx: Context, what: str) -> None:
        if what == "unknown id":
            await app.cancel(UUID(int=7))
        elif what == "conflict":
            await app.enqueue("OTHER", {"n": ctx.attempt}, idempotency_key=f"taken {ctx.attempt}")
        elif what == "code":
            raise Fail("no code at all", "the customer has moved")
        raise Retry("not yet", after=-0.2)

    for attempt in (1, 2):
        await app.enqueue("OTHER", {"n": 0}, idempotency_key=f"taken {attempt}")
    tasks = {what: await app.enqueue("OURS", {"what": what}) for what in ("unknown id", "conflict", "code", "soon")}
    async with working(app):
        found = {what: await ended(app, task.id) for what, task in tasks.items()}
    expected = [(State.FAILED, 2, "unknown_exception", "unknown")] * 3 + [
        (State.FAILED, 2, "retry_requested", "unknown")
    ]
    told = [(t.state, t.attempt_count, t.error_reason, t.failure_type) for t in found.values()]
    assert told == expected
    messages = [task.error_message or "" for task in found.values()]
    assert "00000000-0000-0000-0000-000000000007" in messages[0] and "already belongs to task" in messages[1]
    assert "Fail(code)" in messages[2] and "the customer has moved" in messages[2] and messages[3] == "not yet"


async def test_which_build_an_attempt_failed_on_is_kept(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app(build="7f3c")

    @app.task("BROKEN", max_attempts=1)
    async def broken(ctx: Context) -> None:
        raise ConnectionRefusedError(111, "Connect call failed ('10.0.0.7', 80)")

    task = await app.enqueue("BROKEN")
    async with working(app) as worker:
        await ended(app, task.id)
    store = await app.store()
    [attempt] = (await inspect.show(store, task.id)).attempts
    assert (attempt.build, attempt.peer) == ("7f3c", "10.0.0.7:80")
    assert [row.build for row in (await store.overview()).workers if row.id == worker.id] == ["7f3c"]
    monkeypatch.setattr(sys.modules[__name__.partition(".")[0]], "__version__", "1.2", raising=False)
    assert build_of(make_app().settings, app.registry) == "1.2"  # of the package that the handlers are in


async def test_snooze_keeps_state_and_uses_no_attempt(app: App) -> None:
    @app.task("POLL", max_attempts=1)
    async def poll(ctx: Context) -> Snooze | int:
        seen = ctx.state or 0
        return Snooze(0.01, state=seen + 1) if seen < 5 else seen

    done = await run_task(app, "POLL")
    assert (done.state, done.result, done.attempt_count) == (State.COMPLETED, 5, 1)


async def test_retry_with_a_delay_of_zero_runs_again_at_once(app: App) -> None:
    @app.task("AGAIN", max_attempts=2)
    async def again(ctx: Context) -> Retry | int:
        return Retry("once more", after=0) if ctx.attempt == 1 else ctx.attempt

    done = await run_task(app, "AGAIN")
    assert (done.state, done.result) == (State.COMPLETED, 2)


async def test_cancel_goes_to_history_and_can_be_retried(app: App) -> None:
    @app.task("UNWANTED")
    async def unwanted(ctx: Context, n: int) -> Cancel | int:
        return Cancel("not needed") if ctx.task.replay_count == 0 else n

    task = await app.enqueue("UNWANTED", {"n": 7})
    await drain(app)
    gone = await task_of(app, task.id)
    assert (gone.state, gone.error_message) == (State.CANCELLED, "not needed")
    await app.retry(task.id, actor="ann", reason="needed after all")
    await drain(app)
    done = await task_of(app, task.id)
    assert (done.state, done.result) == (State.COMPLETED, 7)


async def test_deterministic_exceptions_are_not_retried(app: App) -> None:
    @app.task("STRICT", deterministic=(KeyError,))
    async def strict(ctx: Context) -> None:
        raise KeyError("missing")

    failed = await run_task(app, "STRICT")
    assert (failed.state, failed.attempt_count, failed.error_reason) == (State.FAILED, 1, "deterministic_exception")


async def test_a_kind_without_handler_fails_at_once(app: App) -> None:
    app.declare("VIDEO_GEN")
    failed = await run_task(app, "VIDEO_GEN", {"any": "thing"})
    assert (failed.state, failed.attempt_count, failed.error_code) == (State.FAILED, 1, "TASK_PAYLOAD_UNSUPPORTED")


async def test_a_kind_without_handler_can_be_left_for_others(make_app: MakeApp) -> None:
    old, new = make_app(unknown_kind="leave"), make_app()

    @new.task("NEW")
    async def handler(ctx: Context) -> str:
        return "handled"

    task = await new.enqueue("NEW")
    await drain(old)
    waiting = await new.get(task.id)
    assert waiting is not None and (waiting.state, waiting.attempt_count) == (State.QUEUED, 0)
    await drain(new)
    done = await new.get(task.id)
    assert done is not None and done.result == "handled"


async def test_payloads_from_elsewhere_are_validated_by_the_worker(make_app: MakeApp) -> None:
    producer, app = make_app(), make_app()

    class Order(BaseModel):
        number: int

    @app.task("ORDER")
    async def order(ctx: Context, payload: Order) -> int:
        return payload.number

    good = await producer.enqueue("ORDER", {"number": 17})
    bad = await producer.enqueue("ORDER", {"number": "many"})
    none = await producer.enqueue("ORDER")
    await drain(app)
    found = [await app.get(task.id) for task in (good, bad, none)]
    assert [(t.state, t.error_code) for t in found if t] == [
        (State.COMPLETED, None),
        (State.FAILED, "TASK_PAYLOAD_INVALID"),
        (State.FAILED, "TASK_PAYLOAD_MISSING"),
    ]


async def test_bulk_answers_per_task_and_raises_only_for_the_rest(app: App) -> None:
    sizes: list[int] = []

    @app.task("BULK", bulk=4, max_attempts=1)
    async def bulk(items: Bulk) -> None:
        sizes.append(len(items))
        for item in items:
            if item.payload["n"] % 2:
                item.answer({"odd": item.payload["n"]})
            elif item.payload["n"] == 0:
                item.answer(Fail("ZERO", "nothing to do"))
        raise RuntimeError("the rest broke")

    tasks = await app.enqueue_many([("BULK", {"n": n}) for n in range(6)])
    await drain(app, concurrency=1)
    found = [await app.get(task.id) for task in tasks]
    assert [t.error_code or t.result for t in found if t] == [
        "ZERO",
        {"odd": 1},
        "TASK_EXECUTION_FAILED",
        {"odd": 3},
        "TASK_EXECUTION_FAILED",
        {"odd": 5},
    ]
    assert sorted(sizes) == [2, 4]


async def test_bulk_may_return_a_list_of_answers(app: App) -> None:
    @app.task("SQUARES", bulk=10)
    async def squares(items: Bulk) -> list[object]:
        return [item.payload**2 if item.payload else Retry("zero") for item in items]

    tasks = await app.enqueue_many([{"kind": "SQUARES", "payload": n, "max_attempts": 1} for n in (3, 0, 4)])
    await drain(app)
    found = [await app.get(task.id) for task in tasks]
    assert [t.result for t in found if t] == [9, None, 16]
    assert found[1] is not None and found[1].error_reason == "retry_requested"


async def test_def_handlers_run_in_threads_beside_the_loop(app: App) -> None:
    inside, go = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.task("BLOCKING")
    def blocking(ctx: Context) -> str:
        loop.call_soon_threadsafe(inside.set)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result()
        return "blocked and done"

    @app.task("QUICK")
    async def quick(ctx: Context) -> str:
        return "quick"

    slow = await app.enqueue("BLOCKING")
    async with working(app):
        await asyncio.wait_for(inside.wait(), 20)
        other = await app.enqueue("QUICK")
        assert (await ended(app, other.id)).result == "quick"
        go.set()
        assert (await ended(app, slow.id)).result == "blocked and done"


async def test_results_take_what_payloads_take(app: App) -> None:
    known = UUID("0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b")

    @app.task("RICH_RESULT")
    async def rich(ctx: Context) -> object:
        return {"at": datetime(2026, 1, 2, tzinfo=UTC), "price": Decimal("1.10"), "id": known, "tags": {"a"}}

    done = await run_task(app, "RICH_RESULT")
    assert done.result == {"at": "2026-01-02T00:00:00Z", "price": "1.10", "id": str(known), "tags": ["a"]}
