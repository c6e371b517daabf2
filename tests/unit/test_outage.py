"""What a worker says while its store comes and goes."""

from __future__ import annotations

import logging

import pytest

from redrive.errors import StoreUnavailable
from redrive.observe.health import Health
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


def test_waiting_grows_and_starts_over_after_contact(outage: Outage, clock: Clock) -> None:
    waits = [outage.begin(DOWN) for _ in range(10)]
    assert waits[0] <= 0.15 and max(waits) <= 7.5 and waits[-1] >= 2.5
    outage.over()
    clock.now += 60
    assert outage.begin(DOWN) <= 0.15
