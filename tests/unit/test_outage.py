"""What a worker says while its store comes and goes."""

from __future__ import annotations

import asyncio
import logging

import pytest

from redrive.errors import StoreUnavailable
from redrive.observe.counters import Health
from redrive.worker import outage as module
from redrive.worker.outage import Outage

DOWN = StoreUnavailable("no connection left")


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def outage(clock: Clock, caplog: pytest.LogCaptureFixture) -> Outage:
    caplog.set_level(logging.INFO, "redrive.worker")
    return Outage("w", Health(worker_id="w"))


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.event for record in caplog.records]  # type: ignore[attr-defined]


def test_one_interruption_has_one_beginning_and_one_end(
    outage: Outage, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        outage.begin(DOWN)
        clock.now += 1
    assert outage.seconds == 20
    outage.over()
    assert said(caplog) == ["store.unavailable", "store.recovered"]
    assert "after 20.0 s" in caplog.messages[-1]
    assert outage.seconds == 0


def test_it_is_over_when_everyone_who_met_it_is_through(
    outage: Outage, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    outage.begin(DOWN)
    outage.begin(DOWN, "beat")
    outage.over("beat")
    assert said(caplog) == ["store.unavailable"]
    outage.over()
    assert said(caplog) == ["store.unavailable", "store.recovered"]


def test_contact_that_comes_and_goes_is_one_disturbance(
    outage: Outage, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(120):  # a minute of it
        outage.begin(DOWN)
        clock.now += 0.2
        outage.over()
        clock.now += 0.3
    events = said(caplog)
    # The first interruption looks like any other; from the second on it is one, with a reminder every half minute.
    assert events[:3] == ["store.unavailable", "store.recovered", "store.unavailable"]
    assert "comes and goes" in caplog.messages[2]
    assert events[3:] == ["store.unavailable"]
    assert "lost 62 times" in caplog.messages[3]
    for _ in range(12):
        clock.now += 1
        outage.over("beat")
    assert said(caplog)[4:] == ["store.recovered"]
    assert "after 59." in caplog.messages[-1]


def test_a_second_interruption_much_later_is_a_new_one(
    outage: Outage, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        outage.begin(DOWN)
        outage.over()
        clock.now += 60
    assert said(caplog) == ["store.unavailable", "store.recovered"] * 2
    assert not any("comes and goes" in message for message in caplog.messages)


def test_everybody_waits_for_the_same_try_which_comes_within_a_second(outage: Outage, clock: Clock) -> None:
    for _ in range(50):
        first = outage.begin(DOWN)
        assert 0 < first < 1
        clock.now += first / 2
        assert first / 2 < outage.begin(DOWN, "beat") <= 1
        assert abs(outage.begin(DOWN) - first / 2) < 1e-6, "one delay, however many meet it"
        clock.now += first / 2


async def test_who_waits_is_told_when_the_store_is_back(outage: Outage) -> None:
    told: list[str] = []
    outage.on_back = lambda: told.append("back")
    outage.try_now()
    assert not told, "there was no outage"
    outage.begin(DOWN)
    outage.begin(DOWN, "beat")
    waiting = asyncio.create_task(outage.wait(600))
    await asyncio.sleep(0)
    outage.over("beat")
    await asyncio.wait_for(waiting, 60)
    assert told == ["back"]


def test_the_log_gives_a_reason_that_somebody_has_heard(
    outage: Outage, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    gone = StoreUnavailable("the connection is gone")
    gone.vague = True
    outage.begin(gone)
    assert said(caplog) == []
    outage.begin(DOWN)
    outage.over()
    assert said(caplog) == ["store.unavailable", "store.recovered"]
    assert DOWN.message in caplog.messages[0]
    clock.now += 60
    outage.begin(gone)
    outage.over()
    assert said(caplog)[2:] == ["store.unavailable", "store.recovered"], "also if nobody has"
