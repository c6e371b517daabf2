"""What a worker counts is seen in the history of its store, whoever looks, and after it is gone."""

from __future__ import annotations

import asyncio
import json
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redrive import App, Cancel, Context, Fail
from redrive.errors import StoreError, StoreUnavailable
from redrive.kernel.commit import Commit
from redrive.kernel.ports.store import ClaimRequest, Heartbeat, TickResult
from redrive.kernel.series import MOST_SERIES, OTHER, Resolution, SeriesQuery, Tally, TallySheet, read
from redrive.ops.history import history, rates
from redrive.worker import report
from redrive.worker.report import Tallies
from redrive.worker.worker import Worker

from .conftest import MakeApp, drain, until, working


def handlers(app: App) -> App:
    @app.task("GOOD")
    async def good(ctx: Context) -> None: ...

    @app.task("BAD", max_attempts=2)
    async def bad(ctx: Context, n: int) -> None:
        if n % 4 == 0:
            raise Fail("NO_GOOD", "never")
        if n % 4 == 1:
            raise ConnectionError("not now")

    return app


def total(values: list[int | None]) -> int:
    return sum(value or 0 for value in values)


async def test_two_hundred_tasks_are_seen_also_after_a_restart(make_app: MakeApp) -> None:
    app = handlers(make_app())
    await app.enqueue_many([("GOOD", {}) for _ in range(120)] + [("BAD", {"n": n}) for n in range(80)])
    async with working(app, concurrency=20) as worker:
        await until(lambda: worker.health.completed == 160 and worker.health.failed == 40)
    for again in (False, True):
        if again:  # by another process, after somebody has added it up
            assert await (await app.store()).upkeep("series") >= 1
            await app.close()
            app = make_app()
        store = await app.store()
        for period in ("1h", "24h", "7d", "30d", "1y"):
            found = await history(store, period)
            assert [total(found.completed), total(found.failed), total(found.retried)] == [160, 40, 20]
            assert total(found.started) == 220
            assert {name: total(values) for name, values in found.attempts_failed.items()} == {
                "network": 40,
                "unknown": 20,
            }
        good = await history(store, "1h", kind="GOOD")
        assert (total(good.completed), total(good.failed), good.attempts_failed) == (120, 0, {})
        place = next(index for index, n in enumerate(good.completed) if n)
        for times in (good.wait, good.run):
            p50, p95, p99 = (times[name][place] for name in ("p50", "p95", "p99"))
            assert p50 is not None and p95 is not None and p99 is not None and 0 < p50 <= p95 <= p99 < 60
        of_queue = await history(store, "1h", "default", "BAD")
        assert total(of_queue.completed) == 40
        hour = await rates(store)
        assert (sum(hour.kinds["BAD"].completed), sum(hour.kinds["BAD"].failed)) == (40, 40)
        assert hour.kinds["BAD"].failure_rate == 0.5 and hour.queues["default"].failure_rate == 0.2


async def test_everything_that_a_tally_has_is_counted_by_somebody(make_app: MakeApp) -> None:
    """A field that nobody fills would be a chart of zeros."""
    app = handlers(make_app())

    @app.task("AWAY")
    async def away(ctx: Context) -> None:
        raise Cancel("not wanted")

    await app.enqueue_many([("GOOD", {}), ("BAD", {"n": 1}), ("AWAY", {})])
    async with working(app) as worker:
        await until(lambda: worker.health.completed == 1 and worker.health.failed == 1)
    store = await app.store()
    await app.enqueue("GOOD")  # and waits
    await store.upkeep("series")
    rows = await store.series(SeriesQuery(Resolution.MINUTE, await store.now() - timedelta(hours=1)))
    counted = {name for row in rows for name in row.document}
    assert counted == {one.name for one in fields(Tally)}


async def test_an_idle_worker_has_nothing_to_send(make_app: MakeApp) -> None:
    app = handlers(make_app(interval_ms=100))
    store = await app.store()
    sent = spy(store)
    async with working(app):
        await until(lambda: len(sent) > 3)
    assert [beat.sheet for beat in sent] == [None] * len(sent)


async def test_what_was_not_taken_is_sent_again_and_counts_once(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store takes a sheet, and its answer is lost."""
    monkeypatch.setattr(report, "SHEET_EVERY", 0.0)
    app = handlers(make_app(interval_ms=50))
    store = await app.store()
    answers_lost: list[TallySheet] = []

    def lose(beat: Heartbeat) -> None:
        if beat.sheet is not None and len(answers_lost) < 3:
            answers_lost.append(beat.sheet)
            raise StoreUnavailable("the answer is lost")

    sent = spy(store, after=lose)
    async with working(app) as worker:
        await app.enqueue_many([("GOOD", {}) for _ in range(10)])
        await until(lambda: worker.health.completed == 10 and len(answers_lost) == 3)
        await until(lambda: sum(beat.sheet is not None for beat in sent) > 3)
    assert len({sheet.id for sheet in answers_lost}) == 1
    assert total((await history(store, "1h")).completed) == 10


async def test_a_store_that_refuses_a_sheet_still_hears_that_the_worker_lives(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "SHEET_EVERY", 0.0)
    app = handlers(make_app(interval_ms=50))
    store = await app.store()

    def refuse(beat: Heartbeat) -> None:
        if beat.sheet is not None:
            raise StoreError("nonsense")

    sent = spy(store, before=refuse)
    async with working(app) as worker:
        await app.enqueue("GOOD")
        await until(lambda: worker.health.completed == 1 and any(beat.sheet is not None for beat in sent))
        worker.report.tallies.clear()
        worker.ticker.due_in(0)
    assert sent[-1].sheet is None, "it is not sent for ever"


def test_there_is_one_sheet_of_so_many_kinds_however_long_the_store_is_away() -> None:
    counted = Tallies()
    for n in range(3 * MOST_SERIES):
        counted["q", f"K{n}"].completed += 1
    assert len(counted) == MOST_SERIES + 1 and counted["q", OTHER].completed == 2 * MOST_SERIES
    first = counted.sheet()
    assert first is not None and len(json.loads(first.text)) == MOST_SERIES + 1
    counted["q", "A"].completed += 1
    assert counted.sheet(now=True) is first, "until the store has it"
    counted.sent(first)
    assert counted.sheet() is None, "a moment ago"
    last = counted.sheet(now=True)
    assert last is not None and last.id != first.id
    assert [key for _, key, _ in read(last.text, datetime.now(UTC))] == [("q", "A")]
    counted.sent(first)  # late
    assert counted.sheet() is last


def spy(store: Any, *, before: Any = None, after: Any = None) -> list[Heartbeat]:
    """Notes heartbeats on their way to the store; ``before`` and ``after`` may spoil them."""
    sent: list[Heartbeat] = []
    tick = store.tick

    async def noted(beat: Heartbeat) -> TickResult:
        sent.append(beat)
        if before is not None:
            before(beat)
        answer: TickResult = await tick(beat)
        if after is not None:
            after(beat)
        return answer

    store.tick = noted
    return sent


async def test_outcomes_of_recovery_count(make_app: MakeApp) -> None:
    """A worker that died has told nobody: whoever takes its tasks back counts for it."""
    app = handlers(make_app(recovery_interval_ms=100))
    store = await app.store()
    await app.enqueue("GOOD", max_attempts=1)
    assert (await store.cycle(Commit(), ClaimRequest("dead", ("default",), 1, 0.05))).claimed
    await asyncio.sleep(0.1)
    worker: Worker = await drain(app)
    assert worker.health.recovered == 1
    found = await history(store, "1h")
    assert (total(found.failed), total(found.completed)) == (1, 0)
    assert sum(total(values) for values in found.attempts_failed.values()) == 1
