"""When items are looked at again, and what follows from a look."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from redrive.batches.remote.item_task import ItemMemo
from redrive.batches.remote.polling_policy import (
    FailedStart,
    PollingPolicy,
    Seen,
    not_started,
    polled,
    start_again,
    started,
)
from redrive.kernel.machine import declared
from redrive.kernel.outcome import Cancel, Fail, Snooze
from redrive.remote import ProviderError, Status

USUAL = PollingPolicy()
BUSY = ProviderError("busy", provider="video", status_code=503)


def test_the_first_polls_come_soon() -> None:
    assert started("j", USUAL).seconds == 5
    waits = [polled(Seen("j", polls), Status.running(10), USUAL).seconds for polls in range(6)]
    assert waits == [5, 15, 15, 30, 30, 30]  # by how many there were with this one: 1, 2, 3, 4 …


@pytest.mark.parametrize("progress", [None, 99.0])
def test_unknown_progress_is_not_all_of_it(progress: float | None) -> None:
    assert polled(Seen("j", 4), Status.running(progress), USUAL).seconds == 30


def test_all_done_is_looked_at_at_once_the_first_time() -> None:
    assert polled(Seen("j", 4, 50.0), Status.running(100), USUAL).seconds == 0
    assert polled(Seen("j", 5, 100.0), Status.running(100), USUAL).seconds == 30


def test_the_last_poll_ends_it_as_a_timeout() -> None:
    found = polled(Seen("j", 19), Status.running(), USUAL)
    assert isinstance(found, Fail)
    assert (found.code, found.failure_type) == ("MAX_POLL_COUNT_REACHED:20", "timeout")
    assert polled(Seen("j", 18), None, USUAL).state["polls"] == 19  # a job that nobody knows is counted, too
    unknown = polled(Seen("j", 2), None, USUAL)
    assert unknown.state["why"] == "the provider does not know job j: it has lost or removed it (poll 3 of 20)"
    assert "does not know job j" in polled(Seen("j", 19), None, USUAL).message
    assert polled(Seen("j", 19), Status.succeeded({"url": 1}), USUAL) == {"url": 1}
    assert isinstance(polled(Seen("j", 0), Status.cancelled(), USUAL), Cancel)


def test_a_result_is_kept_or_not_charged() -> None:
    assert polled(Seen("j"), Status.succeeded({"a\0": ["b\0", "\ud800", 1]}), USUAL) == {
        "a\\x00": ["b\\x00", "\\ud800", 1]
    }
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for result in ("x" * 3_000_000, float("nan"), object(), deep):
        found = polled(Seen("j"), Status.succeeded(result), USUAL)
        assert isinstance(found, Fail) and (found.code, declared(found).failure.type) == (
            "RESULT_NOT_STORED",
            "unknown",
        )
        assert found.message.startswith("job j succeeded, and is not charged: its result ")


def test_a_poll_that_fails_is_not_counted_and_ends_by_time_alone() -> None:
    found = polled(Seen("j", 19), BUSY, USUAL)
    assert isinstance(found, Snooze) and (found.state["polls"], found.down) == (19, "video: http_5xx")
    asked = ProviderError("busy", provider="video", status_code=429, retry_after="120")
    assert polled(Seen("j", 0), asked, USUAL).seconds == 120
    late = polled(Seen("j", 0, age=86_400), BUSY, USUAL)
    assert isinstance(late, Fail) and (late.code, late.failure_type) == ("BATCH_MAX_ITEM_SECONDS", "timeout")


def test_a_start_that_may_succeed_later_is_repeated() -> None:
    starts = [FailedStart(BUSY, ItemMemo(tries=tries)) for tries in (0, 1, 2, 8)]
    assert [start_again(one, USUAL).seconds for one in starts] == [5, 10, 20, 300]
    assert not any(one.final(USUAL) for one in starts)
    refused = FailedStart(ProviderError("no", status_code=400, code="TASK_ODD"), ItemMemo())
    told = not_started(refused, USUAL)
    assert refused.final(USUAL) and (told.code, told.failure_type) == ("PROVIDER_START_REFUSED", "param_error")


@pytest.mark.parametrize(
    "start",
    [
        FailedStart(BUSY, ItemMemo(tries=9)),
        FailedStart(BUSY, ItemMemo(tries=1, since=100.0), now=100.0 + 21_600),
        FailedStart(BUSY, ItemMemo(tries=1), age=86_400),
    ],
)
def test_a_start_ends_by_attempts_and_time_as_the_provider_calls_it(start: FailedStart) -> None:
    assert start.final(USUAL)
    told = not_started(start, USUAL, unknown=True)
    assert (told.code, told.failure_type, told.state) == ("PROVIDER_START_FAILED", "model_error", {"unknown": True})


def test_a_provider_that_is_down_or_busy_for_all_uses_up_no_start() -> None:
    limited = ProviderError("slower", status_code=429)
    for start in (FailedStart(BUSY, ItemMemo(tries=9), up=False), FailedStart(limited, ItemMemo(tries=9))):
        again = start_again(replace(start, may_step=True), USUAL)
        assert not start.final(USUAL) and again.state["tries"] == 9 and "stepped" not in again.state
    assert start_again(FailedStart(BUSY, ItemMemo(tries=1), may_step=True), USUAL).state["stepped"]
    assert "stepped" not in start_again(FailedStart(BUSY, ItemMemo(tries=0), may_step=True), USUAL).state
