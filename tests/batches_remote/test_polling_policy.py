"""When items are looked at again, and what follows from a look."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from redrive.batches.remote.item_task import ItemMemo, ItemRow
from redrive.batches.remote.polling_policy import (
    FailedStart,
    not_started,
    polled,
    start_again,
    started,
)
from redrive.batches.settings import BatchSettings
from redrive.kernel.machine import declared
from redrive.kernel.outcome import Cancel, Fail, Snooze
from redrive.remote import ProviderError, Status

USUAL = BatchSettings()
BUSY = ProviderError("busy", provider="video", status_code=503)
ROW, STEPS = ItemRow(), ItemRow(may_step=True)


def looked(found: Any, polls: int = 0, **row: Any) -> Any:
    """Returns what follows from a look at the job j."""
    return polled(ItemRow(job="j", polls=polls, **row), ItemMemo(), found, USUAL)


def test_the_first_polls_come_soon() -> None:
    assert started("j", USUAL).seconds == 5
    waits = [looked(Status.running(10), polls).seconds for polls in range(6)]
    assert waits == [5, 15, 15, 30, 30, 30]  # by how many there were with this one: 1, 2, 3, 4 …


@pytest.mark.parametrize("progress", [None, 99.0])
def test_unknown_progress_is_not_all_of_it(progress: float | None) -> None:
    assert looked(Status.running(progress), 4).seconds == 30


def test_all_done_is_looked_at_at_once_the_first_time() -> None:
    assert looked(Status.running(100), 4, progress=50.0).seconds == 0
    assert looked(Status.running(100), 5, progress=100.0).seconds == 30


def test_the_last_poll_ends_it_as_a_timeout() -> None:
    found = looked(Status.running(), 19)
    assert isinstance(found, Fail)
    assert (found.code, found.failure_type) == ("MAX_POLL_COUNT_REACHED:20", "timeout")
    assert looked(None, 18).state["polls"] == 19  # a job that nobody knows is counted, too
    unknown = looked(None, 2)
    assert unknown.state["why"] == "the provider does not know job j: it has lost or removed it (poll 3 of 20)"
    assert "does not know job j" in looked(None, 19).message
    assert looked(Status.succeeded({"url": 1}), 19) == {"url": 1}
    assert isinstance(looked(Status.cancelled(), 0), Cancel)


def test_a_result_is_kept_or_not_charged() -> None:
    assert looked(Status.succeeded({"a\0": ["b\0", "\ud800", 1]})) == {"a\\x00": ["b\\x00", "\\ud800", 1]}
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for result in ("x" * 3_000_000, float("nan"), object(), deep):
        found = looked(Status.succeeded(result))
        assert isinstance(found, Fail) and (found.code, declared(found).failure.type) == (
            "RESULT_NOT_STORED",
            "unknown",
        )
        assert found.message.startswith("job j succeeded, and is not charged: its result ")


def test_a_poll_that_fails_is_not_counted_and_ends_by_time_alone() -> None:
    found = looked(BUSY, 19)
    assert isinstance(found, Snooze) and (found.state["polls"], found.down) == (19, "video: http_5xx")
    asked = ProviderError("busy", provider="video", status_code=429, retry_after="120")
    assert looked(asked, 0).seconds == 120
    late = looked(BUSY, age=86_400)
    assert isinstance(late, Fail) and (late.code, late.failure_type) == ("BATCH_MAX_ITEM_SECONDS", "timeout")


def test_a_start_that_may_succeed_later_is_repeated() -> None:
    starts = [FailedStart(BUSY, ROW, ItemMemo(tries=tries)) for tries in (0, 1, 2, 8)]
    assert [start_again(one, USUAL).seconds for one in starts] == [5, 10, 20, 300]
    assert not any(one.final(USUAL) for one in starts)
    refused = FailedStart(ProviderError("no", status_code=400, code="TASK_ODD"), ROW, ItemMemo())
    told = not_started(refused, USUAL)
    assert refused.final(USUAL) and (told.code, told.failure_type) == ("PROVIDER_START_REFUSED", "param_error")


@pytest.mark.parametrize(
    "start",
    [
        FailedStart(BUSY, ROW, ItemMemo(tries=9)),
        FailedStart(BUSY, ItemRow(now=100.0 + 21_600), ItemMemo(tries=1, since=100.0)),
        FailedStart(BUSY, ItemRow(age=86_400), ItemMemo(tries=1)),
    ],
)
def test_a_start_ends_by_attempts_and_time_as_the_provider_calls_it(start: FailedStart) -> None:
    assert start.final(USUAL)
    told = not_started(start, USUAL, unknown=True)
    assert (told.code, told.failure_type, told.state) == ("PROVIDER_START_FAILED", "model_error", {"unknown": True})


def test_a_provider_that_is_down_or_busy_for_all_uses_up_no_start() -> None:
    limited = ProviderError("slower", status_code=429)
    for start in (FailedStart(BUSY, ROW, ItemMemo(tries=9), up=False), FailedStart(limited, ROW, ItemMemo(tries=9))):
        again = start_again(replace(start, row=STEPS), USUAL)
        assert not start.final(USUAL) and again.state["tries"] == 9 and "stepped" not in again.state
    assert start_again(FailedStart(BUSY, STEPS, ItemMemo(tries=1)), USUAL).state["stepped"]
    assert "stepped" not in start_again(FailedStart(BUSY, STEPS, ItemMemo(tries=0)), USUAL).state
