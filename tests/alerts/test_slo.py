"""Service levels: good and bad starts, what waits still, the budget, and how fast it goes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.errors import ConfigError
from redrive.kernel.alerts.slo import (
    FAST,
    LEAST_STARTS,
    LEAST_TARGET,
    SLOW,
    Objective,
    ServiceLevel,
    Start,
    measure,
)
from redrive.kernel.alerts.thresholds import Limits
from redrive.kernel.documents import from_document, to_document
from redrive.kernel.ports.store import Heartbeat
from redrive.kernel.series import Tally, TallySheet, write
from redrive.ops.alerts.evaluate import Evaluator
from redrive.ops.alerts.findings import Watched
from redrive.ops.alerts.look import load, look_at_all
from redrive.ops.doctor import examine
from redrive.ops.fleet_metrics import samples_of
from redrive.settings import load_settings
from redrive_kit.conformance.harness import Harness
from tests.alerts.cases import NOW
from tests.alerts.test_evaluate import later
from tests.api.conftest import served
from tests.cli.conftest import here, redrive  # noqa: F401 - fixtures
from tests.console.conftest import console, make_app, page, text_of

THIRTY = Objective(30, 0.95, 30)


def test_a_start_at_the_bound_is_good() -> None:
    tally = Tally()
    for seconds in (0.0, 29.9, 30.0, 30.1, 5000.0):
        tally.waited(seconds)
    assert THIRTY.split(tally.wait) == (3, 2)


def test_the_budget_and_how_fast_it_goes() -> None:
    minutes = [(NOW - timedelta(minutes=n), (90, 10)) for n in range(60)]
    found = measure(THIRTY, minutes, [(NOW, (9_700, 300))], 0, NOW)
    assert found.share == 0.97 and round(found.left, 6) == 0.4
    assert found.burn == {"5m": 2.0, "30m": 2.0, "30m_lasting": 2.0, "1h": 2.0, "6h": 2.0}
    assert measure(THIRTY, [], [(NOW, (900, 100))], 0, NOW).left == pytest.approx(-1.0), "more is late than allowed"


def test_a_standstill_does_not_look_well() -> None:
    still = measure(THIRTY, [], [], 20, NOW)
    assert still.fast == 20.0 and still.share == 0 and still.bad == 20
    nothing = measure(THIRTY, [], [], 0, NOW)
    assert nothing.fast == 0 and nothing.share == nothing.left == 1


def test_a_standstill_that_lasts_is_told_by_both_rules() -> None:
    """Seen: what waits was taken for the worst five minutes, so that in a standstill the slow rule saw nothing."""
    good = [(NOW - timedelta(minutes=ago), (10, 0)) for ago in range(60, 360)]
    for target in (LEAST_TARGET, 0.95, 0.99, 0.999):
        still = measure(Objective(30, target, 30), [], [], 500, NOW, lasting=400)
        assert still.fast > FAST and still.slow > SLOW, target
        assert measure(Objective(30, target, 30), good, [], 3000, NOW, lasting=3000).slow > SLOW
    few = measure(THIRTY, [], [], 3, NOW, lasting=1)
    assert few.fast > FAST and few.slow > SLOW, "also of a queue with few tasks"


def test_a_few_starts_say_nothing() -> None:
    few = measure(THIRTY, [(NOW, (0, LEAST_STARTS - 1))], [], 0, NOW)
    assert few.fast == few.slow == 0


def late(minutes: Iterable[int], bad: int = 100) -> list[Start]:
    return [(NOW - timedelta(minutes=ago), (0, bad)) for ago in minutes]


def test_a_burst_is_of_the_fast_rule_alone_and_over_with_it() -> None:
    """Seen: half a minute of late starts fired both, and the slow one for half an hour after."""
    for ago in range(30):
        found = measure(THIRTY, late([ago, ago + 1]), [], 0, NOW)
        assert (found.fast > FAST) is (ago <= 5) and found.slow == 0, ago
    assert measure(THIRTY, late([0]), [], 200, NOW).slow == 0, "nor while some of it waits still"


def test_what_goes_on_is_of_the_slow_rule_also_where_little_is_done() -> None:
    leak = [(NOW - timedelta(minutes=ago), (6, 4)) for ago in range(0, 360, 10)]
    assert measure(THIRTY, leak, [], 0, NOW).slow == 8.0
    assert measure(THIRTY, late([1, 9, 20], 4), [], 0, NOW).slow > SLOW
    over = [(at - timedelta(minutes=31), starts) for at, starts in leak]
    assert measure(THIRTY, over, [], 0, NOW).slow == 0, "it ends"


def test_what_has_ended_burns_no_more() -> None:
    early = [(NOW - timedelta(minutes=40), (0, 100))]
    assert measure(THIRTY, early, [], 0, NOW).fast == 0


def test_it_is_read_as_it_was_written() -> None:
    service = ServiceLevel(THIRTY, 5, 2, 1, {"1h": 2.5}, NOW)
    assert from_document(ServiceLevel, to_document(service)) == service


async def start(harness: Harness, name: str, *waits: float) -> None:
    """Tasks that were started after so many seconds, as a worker tells of them."""
    tally = Tally()
    for seconds in waits:
        tally.waited(seconds)
    sheet = TallySheet(name, write({("default", "A"): tally}))
    await harness.store.tick(Heartbeat("w1", "host", 1, ("default",), 4, 0, "0", {}, sheet=sheet))


async def test_starts_of_workers_and_tasks_that_wait(harness: Harness) -> None:
    await start(harness, "1", *[1.0] * 80, *[40.0] * 20)
    for folded in range(2):
        found = (await look_at_all(harness.store, {"default": THIRTY}))["default"]
        assert (found.good, found.bad, found.overdue, found.fast) == (80, 20, 0, 4.0), folded
        await harness.store.upkeep("series")
    await harness.enqueue_many(400, "A")
    await harness.advance(31)
    found = (await look_at_all(harness.store, {"default": THIRTY}))["default"]
    assert (found.good, found.bad, found.overdue) == (80, 420, 400)
    await Evaluator(Limits(), {}, objectives={"default": THIRTY}).run(harness.store, "w1")
    book, _ = await load(harness.store, await harness.store.now())
    told = book.alerts["slo_fast:default"].detail
    assert told.splitlines() == [
        "objective: 95 % of its tasks start within 30 s, over 30 days; the error budget is used up,"
        " 400 wait longer now",
        "waiting: A 400",
    ]
    assert "slo_slow:default" not in book.alerts, "a minute is no half an hour"
    assert "16.8 times as fast as it may" in book.alerts["slo_fast:default"].text
    samples = samples_of(await harness.store.figures())
    assert samples["redrive_fleet_slo_burn_rate"]["default", "1h"] == 16.8
    assert samples["redrive_fleet_slo_budget_left_ratio"]["default",] == pytest.approx(-15.8)


async def test_doctor_judges_them_also_where_nobody_evaluates(harness: Harness) -> None:
    await harness.enqueue("A")
    await start(harness, "1", *[40.0] * 100)
    await Evaluator(Limits(), {}).run(harness.store, "w1")
    await later(harness, 200)
    found = await examine(harness.store, watched=Watched(objectives={"default": THIRTY}))
    assert {"alerts_stale", "slo_fast"} <= {one.code for one in found}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wait_seconds = 31", "REDRIVE_SLO.reports.wait_seconds: it is one of .*30, 60"),
        ("target = 95", "REDRIVE_SLO.reports.target: it is a share"),
        ("days = 0", "REDRIVE_SLO.reports.days: it is from 1 to 365"),
        ("wait = 30", "REDRIVE_SLO.reports.wait: there is no such field"),
    ],
)
def test_objectives_that_cannot_be(text: str, said: str, here: Path) -> None:  # noqa: F811
    (here / "redrive.toml").write_text(f"[slo.reports]\n{text}\n")
    with pytest.raises(ConfigError, match=said) as error:
        load_settings()
    assert "redrive.toml, line" in str(error.value)


def test_by_command(redrive: Any, here: Path) -> None:  # noqa: F811
    url = ("--url", f"sqlite:///{here}/a.db")
    redrive("migrate", *url)
    assert "no queue has an objective" in redrive("slo", *url).out
    (here / "redrive.toml").write_text("[slo.default]\nwait_seconds = 60\n")
    said = redrive("slo", *url)
    assert said.code == 0 and "0.95 within 60 s, 30 d" in said.out and "100%" in said.out


async def test_over_http_and_in_the_console(here: Path) -> None:  # noqa: F811
    (here / "redrive.toml").write_text("[slo.default]\nwait_seconds = 60\n")
    async with served(make_app(f"sqlite:///{here}/a.db")) as client:
        [found] = (await client.get("/api/alerts/slo")).json()
        assert (found["queue"], found["budgetLeft"], found["waitSeconds"]) == ("default", 1.0, 60.0)
    async with console(make_app(f"sqlite:///{here}/b.db")) as client:
        assert "95 % start within 60 s, over 30 d" in text_of(await page(client, "/alerts"))
