"""The kit that applications test themselves with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from redrive import App, Context, Fail, State
from redrive.errors import TaskNotFound
from redrive.ops.operations import drive
from redrive.testing import TestKit, using, using_sync


@pytest.fixture(name="app")
def make_app() -> App:
    app = App("sqlite:///never-touched.db")

    @app.task("SEND", queue="mail")
    async def send(ctx: Context, to: str, subject: str = "hi") -> dict[str, str]:
        return {"sent": to}

    @app.task("FLAKY", max_attempts=3)
    async def flaky(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ConnectionError("not yet")
        return ctx.attempt

    @app.task("REFUSE")
    def refuse(ctx: Context) -> None:
        raise Fail("NOT_TODAY", "closed")

    @app.task("CHAIN")
    async def chain(ctx: Context, left: int) -> None:
        if left:
            await app.enqueue("CHAIN", {"left": left - 1})

    @app.task("TICK")
    async def tick(ctx: Context) -> None:
        pass

    app.periodic("TICK", cron="0 * * * *")
    return app


async def test_runs_what_is_enqueued_and_touches_no_file(app: App, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with using(app) as kit:
        task = await app.enqueue("SEND", {"to": "a@b.c"})
        drained = await kit.drain()
        assert (drained.claimed, drained.completed) == (1, 1)
        assert kit.get(task).result == {"sent": "a@b.c"}
    assert app.url == "sqlite:///never-touched.db"
    assert not list(tmp_path.iterdir())


async def test_retries_wait_for_the_clock(app: App) -> None:
    async with using(app) as kit:
        task = await app.enqueue("FLAKY")
        assert (await kit.drain()).requeued == 1
        assert kit.get(task).state is State.DELAYED
        assert (await kit.drain()).claimed == 0
        for _ in range(2):
            kit.advance(120)
            await kit.drain()
        assert kit.get(task).state is State.COMPLETED
        assert kit.failures() == []


async def test_delays_and_schedules_follow_the_clock(app: App) -> None:
    async with using(app) as kit:
        await app.enqueue("SEND", {"to": "later@b.c"}, run_at=datetime.now(UTC) + timedelta(days=1))
        assert (await kit.drain()).claimed == 0
        kit.clock.advance(timedelta(hours=1, minutes=1))
        await kit.drain()
        kit.assert_enqueued("TICK")
        kit.advance(86400)
        await kit.drain()
        assert kit.assert_enqueued("SEND").state is State.COMPLETED
    with pytest.raises(ValueError, match="forward"):
        kit.advance(-1)


async def test_drain_follows_what_tasks_enqueue_but_not_for_ever(app: App) -> None:
    async with using(app) as kit:
        await app.enqueue("CHAIN", {"left": 3})
        assert (await kit.drain()).completed == 4
        await app.enqueue("CHAIN", {"left": 100})
        with pytest.raises(AssertionError, match="does one enqueue itself"):
            await kit.drain(limit=20)


async def test_no_failures_or_what_they_were(app: App) -> None:
    async with using(app) as kit:
        await app.enqueue("SEND", {"to": "a@b.c"})
        await kit.drain()
        kit.assert_no_failures()
        await app.enqueue("REFUSE")
        await app.enqueue("FLAKY")
        await kit.drain()
        kit.assert_no_failures("SEND")
        with pytest.raises(AssertionError) as raised:
            kit.assert_no_failures()
        assert str(raised.value).splitlines() == [
            "2 × a task failed:",
            "  REFUSE null (failed)",
            "    attempt 1 of 5: NOT_TODAY: closed",
            "  FLAKY null (delayed)",
            "    attempt 1 of 3: TASK_EXECUTION_FAILED: ConnectionError: not yet",
        ]
        kit.advance(3600)
        await kit.drain()
        kit.advance(3600)
        await kit.drain()
        kit.assert_no_failures("FLAKY")


async def test_assertions_say_what_was_enqueued_instead(app: App) -> None:
    async with using(app) as kit:
        with pytest.raises(AssertionError, match="nothing was enqueued at all"):
            kit.assert_enqueued("SEND", to="a@b.c")
        await app.enqueue("SEND", {"to": "a@b.c"})
        with pytest.raises(AssertionError, match=r"no SEND with to='x@y.z' was enqueued.*\n.*a@b\.c"):
            kit.assert_enqueued("SEND", to="x@y.z")
        with pytest.raises(AssertionError, match=r"no FLAKY was enqueued; these tasks were:\n  SEND"):
            kit.assert_enqueued("FLAKY")
        with pytest.raises(AssertionError, match=r"1 × SEND with to='a@b.c' was enqueued"):
            kit.assert_not_enqueued("SEND", to="a@b.c")
        kit.assert_not_enqueued("SEND", to="x@y.z")
        assert kit.assert_enqueued("SEND", to="a@b.c").queue == "mail"


def test_from_ordinary_functions(app: App) -> None:
    with using_sync(app) as kit:
        task = app.sync.enqueue("SEND", {"to": "a@b.c"})
        assert kit.drain_sync().completed == 1
        assert kit.get(task).state is State.COMPLETED
    app.sync.close()


def test_fixture_rebinds_also_inside_a_loop(app: App, redrive_app: Callable[..., TestKit]) -> None:
    kit = redrive_app(app)

    async def body() -> None:
        await app.enqueue("SEND", {"to": "a@b.c"})
        kit.assert_enqueued("SEND", to="a@b.c")
        assert (await kit.drain()).completed == 1

    asyncio.run(body())


async def test_the_api_without_a_network(app: App) -> None:
    async with using(app) as kit:
        made = kit.api.post("/api/tasks", {"kind": "SYSTEM_FAIL_ALWAYS", "maxAttempts": 1}).ok()
        await kit.drain()
        ops = kit.api.get("/api/tasks/ops", auditPage=1).ok()
        assert ops["totals"]["failed"] == 1
        answer = kit.api.post("/api/tasks/dead-letters/retry", {"taskIds": [made["id"]]}, **{"X-Actor": "ann"})
        assert answer.ok()["retried"] == [made["id"]]
        [row] = kit.api.get("/api/tasks/audit-logs", auditAction="TASK_RETRY_BATCH_ITEM").ok()["items"]
        assert row["actor"] == "ann"
        with pytest.raises(AssertionError, match="answered 404"):
            kit.api.get(f"/api/tasks/{uuid4()}").ok()
        text = kit.api.get("/api/tasks/audit-logs/export", format="csv").text
        assert text.count("\r\n") == 3


async def test_failed_tasks_from_the_applications_own_code(app: App) -> None:
    async with using(app) as kit:
        task, other = await app.enqueue("REFUSE"), await app.enqueue("TICK", delay=60)
        await kit.drain()
        [failed] = await app.failed.list(kind="REFUSE")
        assert failed.failed and failed.error is not None
        assert (failed.error.code, failed.error.message) == ("NOT_TODAY", "closed")
        assert await app.failed.list(100, 0) == [failed] and await app.failed.list(100, 1) == []
        assert await app.failed.count() == 1 and await app.failed.list(kind="SEND") == []
        assert (await app.failed.statistics()).by_code == {"NOT_TODAY": 1}
        assert [reason.code for reason in await app.why(task.id)] == ["failed"]
        assert [reason.code for reason in await app.why(other.id)] == ["run_at"]
        done = await app.failed.retry_many([task.id, str(other.id)], actor="ann")
        assert done.retried == [task.id] and "delayed" in done.skipped[other.id]
        assert await app.failed.retry(task.id) is False, "it is queued"
        with pytest.raises(TaskNotFound):
            await app.failed.retry(uuid4())
        assert (await app.get(task.id)).error is None  # type: ignore[union-attr]


@pytest.mark.parametrize("how", [{}, {"canary": {"first": 1}}, {"rate": 1}])
async def test_a_bulk_operation_is_drained_too(app: App, how: dict[str, Any]) -> None:
    """No time passes meanwhile: one at a rate waits for ``advance``, like everything that is not due."""
    async with using(app) as kit:
        tasks = [await app.enqueue("REFUSE") for _ in range(3)]
        await kit.drain()
        kit.api.post("/api/operations", {"jobKind": "REFUSE", **how})
        await kit.drain()
        rounds = [kit.get(task).replay_count for task in tasks]
        # The handler still refuses: a canary stops it, a rate of one a second lets one through.
        assert sorted(rounds) == ([1, 1, 1] if not how else [0, 0, 1])
        [operation] = kit.api.get("/api/operations").ok()["operations"]
        assert operation["status"] == ("completed" if not how else "stopped" if "canary" in how else "running")


async def test_a_bulk_operation_that_cannot_go_on_holds_nobody_up(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> Any:
        raise RuntimeError("broken")

    async with using(app) as kit:
        await app.enqueue("REFUSE")
        await kit.drain()
        kit.api.post("/api/operations", {"jobKind": "REFUSE"})
        monkeypatch.setattr(drive, "step", broken)
        async with asyncio.timeout(60):
            await kit.drain()
