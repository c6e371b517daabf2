"""Series: what workers count is added up once, by the minute, the hour and the day, and is seen before that."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from redrive.kernel.outcome import Completed
from redrive.kernel.ports.store import Heartbeat, Store
from redrive.kernel.retention import Retention
from redrive.kernel.series import (
    ALL,
    MOST_SERIES,
    OTHER,
    Document,
    Key,
    Resolution,
    SeriesQuery,
    Tally,
    TallySheet,
    add,
    from_document,
    write,
)
from redrive_kit.conformance.harness import TERMINAL, Harness, failing

LONG_AGO = timedelta(days=1000)
MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
CLOCKS_APART = 1.0


def tallied(completed: int = 1, failed: int = 0) -> Tally:
    tally = Tally(started=completed, completed=completed, failed=failed, failures={"network": failed} if failed else {})
    for _ in range(completed):
        tally.waited(0.02)
        tally.ran(700)
    return tally


async def send(harness: Harness, sheet_id: str, *, store: Store | None = None, **kinds: Tally) -> None:
    await send_all(harness, sheet_id, kinds, store)


async def send_all(harness: Harness, sheet_id: str, kinds: Mapping[str, Tally], store: Store | None = None) -> None:
    """A heartbeat with what a worker has counted."""
    sheet = TallySheet(sheet_id, write({("default", kind): tally for kind, tally in kinds.items()}))
    beat = Heartbeat("w1", "host", 1, ("default",), 4, 0, "0", {}, sheet=sheet)
    await (store or harness.store).tick(beat)


async def found(harness: Harness, resolution: Resolution = Resolution.MINUTE, **which: Any) -> dict[Key, Tally]:
    """Everything there is of one resolution, added up over time."""
    since = await harness.store.now() - LONG_AGO
    sums: dict[Key, Document] = {}
    for row in await harness.store.series(SeriesQuery(resolution, since, **which)):
        add(sums.setdefault((row.queue, row.kind), {}), row.document)
    return {key: from_document(document) for key, document in sums.items()}


async def completed(harness: Harness, resolution: Resolution = Resolution.MINUTE) -> int:
    everything = (await found(harness, resolution)).get((ALL, ALL))
    return 0 if everything is None else everything.completed


async def minutes(harness: Harness) -> int:
    """How many minutes have rows."""
    rows = await harness.store.series(SeriesQuery(Resolution.MINUTE, await harness.store.now() - LONG_AGO))
    return len({row.at for row in rows})


class TestSeries:
    async def test_what_was_sent_is_seen_at_once_and_the_same_after_it_was_added(self, harness: Harness) -> None:
        await send(harness, "1", A=tallied(3), B=tallied(2, failed=1))
        for added in (False, True):
            if added:
                assert await harness.store.upkeep("series") == 1
            for resolution in Resolution:
                a = (await found(harness, resolution, queue="default", kind="A"))["default", "A"]
                assert (a.completed, a.failed, sum(a.wait), sum(a.run), a.run_ms) == (3, 0, 3, 3, 2100)
                queue = (await found(harness, resolution, queue="default"))["default", ALL]
                assert (queue.completed, queue.failed, queue.failures) == (5, 1, {"network": 1})
                assert await completed(harness, resolution) == 5
            ended = await harness.store.series(
                SeriesQuery(Resolution.MINUTE, await harness.store.now() - LONG_AGO, ends=True)
            )
            assert {(row.kind, row.completed, row.failed) for row in ended} == {("A", 3, 0), ("B", 2, 1)}
        assert await harness.store.upkeep("series") == 0

    async def test_a_sheet_that_comes_again_is_taken_once(self, harness: Harness) -> None:
        other = await harness.another()
        for _ in range(2):
            await send(harness, "1", A=tallied(3))
        await harness.store.upkeep("series")
        # The answer was lost, and the sheet was added up before it came again.
        await send(harness, "1", A=tallied(3), store=other)
        assert await completed(harness) == 3
        await asyncio.gather(*(send(harness, "2", A=tallied(), store=s) for s in (harness.store, other) * 3))
        await harness.store.upkeep("series")
        assert await completed(harness) == 4

    async def test_two_that_add_up_at_once_add_everything_once(self, harness: Harness) -> None:
        other = await harness.another()
        for n in range(20):
            await send(harness, str(n), A=tallied())
        await asyncio.gather(*(store.upkeep("series") for store in (harness.store, other) * 3))
        await harness.store.upkeep("series")
        for resolution in Resolution:
            assert await completed(harness, resolution) == 20
        everything = (await found(harness))[ALL, ALL]
        assert 1 <= everything.samples <= 7

    async def test_adding_again_changes_nothing_that_was_counted(self, harness: Harness) -> None:
        await send(harness, "1", A=tallied(3, failed=2))
        await harness.store.upkeep("series")
        before = (await found(harness, kind="A"))["default", "A"]
        assert await harness.store.upkeep("series") == 0
        assert (await found(harness, kind="A"))["default", "A"] == before

    async def test_hours_and_days_are_the_sums_of_their_minutes(self, harness: Harness) -> None:
        for n in range(4):
            await send(harness, str(n), A=tallied(n + 1), B=tallied(1, failed=n))
            if n % 2:
                await harness.store.upkeep("series")
            await harness.advance(MINUTE)
        await harness.store.upkeep("series")
        assert await minutes(harness) >= 4
        wanted = await found(harness, kind="A")
        for resolution in (Resolution.HOUR, Resolution.DAY):
            assert (await found(harness, resolution, kind="A")) == wanted
        assert wanted["default", "A"].completed == 10

    async def test_what_comes_in_the_next_minute_is_of_that_minute(self, harness: Harness) -> None:
        now = await harness.store.now()
        left = 60 - now.second - now.microsecond / 1e6
        if left < CLOCKS_APART:  # the boundary would come while we send
            await harness.advance(2 * CLOCKS_APART)
        await send(harness, "1", A=tallied(1))
        await harness.advance(MINUTE)
        await send(harness, "2", A=tallied(2))
        rows = await harness.store.series(SeriesQuery(Resolution.MINUTE, now - LONG_AGO, kind="A"))
        counts = sorted((row.at, row.tally.completed) for row in rows if row.kind == "A")
        assert [n for _, n in counts] == [1, 2] and counts[1][0] - counts[0][0] == timedelta(minutes=1)

    async def test_a_look_says_how_much_is_there_and_how_long_it_waits(self, harness: Harness) -> None:
        await harness.failed("BROKEN")
        claimed = await harness.running("A")
        await harness.enqueue_many(2, "A")
        await harness.enqueue("A", delay=1000.0)
        await harness.advance(2 * MINUTE)
        await harness.store.upkeep("series")
        a = (await found(harness, kind="A"))["default", "A"]
        assert a.depth == {"queued": 2, "running": 1, "delayed": 1}
        everything = await found(harness, queue="default")
        assert everything[ALL, ALL].samples == 1
        assert everything["default", ALL].depth == {"queued": 2, "running": 1, "delayed": 1, "failed": 1}
        assert everything["default", ALL].oldest == pytest.approx(120, abs=10)
        await harness.settle(claimed, Completed())
        await harness.store.upkeep("series")
        assert (await found(harness, kind="A"))["default", "A"].depth["queued"] == 4, "two looks add up"
        assert (await found(harness))[ALL, ALL].samples == 2

    async def test_there_are_only_so_many_kinds(self, harness: Harness) -> None:
        await send_all(harness, "1", {f"K{n:04}": tallied() for n in range(MOST_SERIES)})
        await harness.store.upkeep("series")
        await send_all(harness, "2", {f"L{n:04}": tallied() for n in range(50)} | {"K0001": tallied()})
        await harness.store.upkeep("series")
        assert await completed(harness) == MOST_SERIES + 51
        assert (await found(harness, kind=OTHER))["default", OTHER].completed == 50
        assert (await found(harness, kind="K0001"))["default", "K0001"].completed == 2
        assert set(await found(harness, kind="L0001")) == {(ALL, ALL)}

    async def test_rows_are_kept_by_their_length(self, harness: Harness) -> None:
        keep = Retention(series_minute_days=1.0, series_hour_days=10.0, series_day_days=20.0)
        await send(harness, "1", A=tallied())
        await harness.store.upkeep("series")
        seen = []
        for days in (0.5, 1, 9, 11):
            await harness.advance(days * DAY)
            assert await harness.store.upkeep("prune", keep) == 0  # nobody is told of it
            seen.append([await completed(harness, resolution) for resolution in Resolution])
        assert seen == [[1, 1, 1], [0, 1, 1], [0, 0, 1], [0, 0, 0]]

    async def test_a_sheet_that_nobody_adds_up_does_not_stay(self, harness: Harness) -> None:
        await send(harness, "1", A=tallied())
        await harness.advance(2 * DAY)
        await harness.store.upkeep("prune")
        assert await completed(harness) == 0

    async def test_a_sheet_of_another_version_spoils_nothing(self, harness: Harness) -> None:
        sheets = [
            TallySheet(str(n), text)
            for n, text in enumerate(
                ("[[1]]", '{"v":2}', '[["default","A",[]]]', "no", '[["default","A",{"completed":"x"}]]')
            )
        ]
        for sheet in sheets:
            await harness.store.tick(Heartbeat("w1", "host", 1, ("default",), 4, 0, "0", {}, sheet=sheet))
        await send(harness, "9", A=tallied())
        await harness.store.upkeep("series")
        assert await completed(harness) == 1

    async def test_a_claim_says_how_long_a_task_waited(self, harness: Harness) -> None:
        await harness.enqueue("NOW")
        await harness.enqueue("LATER", delay=100.0)
        await harness.advance(130)
        await harness.tick()
        waited = {task.kind: task for task in await harness.claim(2)}
        assert waited["NOW"].waited == pytest.approx(130, abs=10)
        assert waited["LATER"].waited == pytest.approx(30, abs=10), "from when it was due"
        await harness.settle(waited["NOW"], failing())
        await harness.advance(20)
        await harness.tick()
        assert (await harness.claim_one()).waited is None, "when a retry was due is not kept"
        await harness.settle(waited["LATER"], TERMINAL)

    async def test_a_heartbeat_costs_the_same_when_nothing_was_counted(self, harness: Harness) -> None:
        await harness.tick()
        async with harness.measure(harness.store) as before:
            await harness.tick()
        async with harness.measure(harness.store) as counting:
            await send(harness, "1", A=tallied(), B=tallied())
        async with harness.measure(harness.store) as after:
            await harness.tick()
        assert len(after.statements) == len(before.statements)
        assert len(counting.statements) <= len(before.statements) + 2  # and none more where a tick is one call
