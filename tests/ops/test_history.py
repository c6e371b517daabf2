"""How things went, as lists to draw."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from redrive.errors import InvalidInput, UnknownKind, UnknownQueue
from redrive.kernel.outcome import Completed
from redrive.kernel.series import BOUNDS, SeriesRow, Tally
from redrive.ops import executor
from redrive.ops.access import Role
from redrive.ops.history import PERIODS, History, add_up
from redrive_kit.conformance.harness import Harness
from redrive_kit.conformance.series import send, tallied
from tests.ops.test_operator import operator

MINUTE = timedelta(minutes=1)
MOMENTS = [datetime(2026, 3, 1, 12, n, tzinfo=UTC) for n in range(4)]


def asked(queue: str | None = None, kind: str | None = None) -> History:
    return History("1h", queue, kind, MINUTE.total_seconds(), MOMENTS)


@pytest.mark.parametrize("period", list(PERIODS))
async def test_where_nobody_looked_there_is_nothing(harness: Harness, period: str) -> None:
    found = await operator(harness).health.history(period)
    gaps = [None] * len(found.moments)
    assert len(gaps) == PERIODS[period].steps and found.step == found.moments[1] - found.moments[0]
    assert found.completed == found.failed == found.depth == found.oldest_age == found.wait["p99"] == gaps
    rates = await operator(harness).health.rates()
    assert (len(rates.moments), rates.kinds, rates.queues) == (60, {}, {})


async def test_what_nobody_knows_has_no_history(harness: Harness) -> None:
    with pytest.raises(InvalidInput, match="'2h' is not a period"):
        await operator(harness).health.history("2h")
    with pytest.raises(UnknownKind):
        await operator(harness).health.history("1h", kind="nonsense")
    with pytest.raises(UnknownQueue):
        await operator(harness).health.history("1h", queue="nonsense")


@pytest.mark.parametrize("period", list(PERIODS))
async def test_a_moment_ago_is_in_the_last_step(harness: Harness, period: str) -> None:
    await harness.settle(await harness.running(), Completed())
    await send(harness, "1", A=tallied(3))
    await harness.store.upkeep("series")
    for queue, kind in ((None, None), ("default", None), (None, "A"), ("default", "A")):
        found = await operator(harness).health.history(period, queue, kind)
        assert sum(n or 0 for n in found.completed[-2:]) == 3, "the clock may have gone on"


def test_a_gap_is_not_a_zero() -> None:
    rows = [
        SeriesRow(MOMENTS[0], "", "", Tally(samples=2, depth={"queued": 6}, completed=4).document()),
        SeriesRow(MOMENTS[0], "q", "a", Tally(depth={"queued": 6}, completed=4).document()),
        SeriesRow(MOMENTS[1], "", "", Tally(samples=1).document()),
        # Counted, and sent, while nobody had looked yet.
        SeriesRow(MOMENTS[3], "", "", Tally(completed=1).document()),
    ]
    everything = add_up(asked(), rows)
    assert everything.completed == [4, 0, None, 1]
    assert everything.depth == [3.0, 0.0, None, None], "the mean of the looks"
    assert everything.oldest_age == [0.0, 0.0, None, None]
    kind = add_up(asked("q", "a"), rows)
    assert kind.completed == [4, 0, None, None] and kind.depth == [3.0, 0.0, None, None]
    assert kind.oldest_age == [None] * 4


def test_rows_about_the_same_are_added_and_percentiles_are_of_the_sum() -> None:
    quick, slow = Tally(), Tally(failures={"network": 2}, failed=1)
    for _ in range(99):
        quick.ran(0.5)
    slow.ran(7_200_000)
    found = add_up(asked(), [SeriesRow(MOMENTS[2], "", "", one.document()) for one in (quick, slow)])
    assert found.run["p50"][2] is not None and found.run["p50"][2] < 0.001
    assert found.run["p99"][2] == pytest.approx(0.001) and found.wait["p50"] == [None] * 4
    assert found.attempts_failed == {"network": [None, None, 2, None]}
    only = add_up(asked(), [SeriesRow(MOMENTS[2], "", "", slow.document())])
    assert only.run["p50"][2] == BOUNDS[-1], "an hour, or more"


async def test_a_viewer_may_look(harness: Harness) -> None:
    viewer = operator(harness, Role.VIEWER)
    assert (await viewer.health.history()).period == "1h" and (await viewer.health.rates()).kinds == {}


async def test_executors_are_counted_with_their_next_claim(harness: Harness) -> None:
    await harness.enqueue_many(3)
    outside = operator(harness).executors
    claimed = await outside.claim("ext", ["default"], 3, 60.0)
    outcomes = [executor.outcome("completed"), executor.outcome("failed", code="BAD"), executor.outcome("released")]
    for task, said in zip(claimed, outcomes, strict=True):
        for _ in range(2):  # the same report again counts once
            await outside.report(task.id, task.token, said, 20.0)
    assert len(await outside.claim("ext", ["default"], 1, 60.0)) == 1
    found = await operator(harness).health.history("1h")
    numbers = [sum(n or 0 for n in values) for values in (found.started, found.completed, found.failed)]
    assert numbers == [3, 1, 1], "what was claimed just now comes with the next one"
    assert max(value or 0 for value in found.run["p50"]) > 0
