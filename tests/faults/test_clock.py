"""Only the store's clock decides: a worker that believes in another time changes nothing."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from redrive.kernel.task import State
from tests.faults.harness import World, until

pytestmark = pytest.mark.faults
TWO_HOURS = 7200.0


@pytest.mark.parametrize("skew", [TWO_HOURS, -TWO_HOURS], ids=["ahead", "behind"])
def test_a_worker_with_a_wrong_clock(postgres: World, skew: float) -> None:
    schedule = {"FAULT_SCHEDULE": "0 * * * *"}
    wrong = postgres.worker("wrong", skew=skew, env=schedule, concurrency=4)
    gated = postgres.enqueue("GATED", max_attempts=1)
    hour = postgres.enqueue("QUICK", delay=3600)
    soon = postgres.enqueue("QUICK", delay=0.5)
    flaky = postgres.enqueue("FLAKY")
    postgres.wait_completed([soon.id, flaky.id])
    # Renewed under its own lease of 2 s, and not taken away by whoever looks with the wrong clock.
    first = postgres.get(gated).lease_expires_at
    until(lambda: (postgres.get(gated).lease_expires_at or first) > first, "the lease is renewed")
    left = postgres.get(gated).lease_expires_at - datetime.now(UTC)
    assert left < timedelta(seconds=3)
    # The schedule's next run is the next full hour of the real clock.
    [(planned,)] = postgres.sql("select next_at from redrive.schedule where name = 'quick'")
    assert timedelta(0) < planned - datetime.now(UTC) <= timedelta(hours=1)
    assert not wrong.logged("schedule.fired")
    postgres.open()
    postgres.wait_state(gated, State.COMPLETED)
    assert postgres.get(hour).state is State.DELAYED
    assert wrong.stop() == 0
    assert wrong.health["recovered"] == 0
    ids = [gated.id, hour.id, soon.id, flaky.id]
    assert postgres.account(ids) == {"completed": 3, "delayed": 1}


def test_a_producer_with_a_clock_that_is_ahead_finds_its_tasks(
    postgres: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids carry their producer's time."""

    real = time.time_ns
    monkeypatch.setattr("redrive.ids.time.time_ns", lambda: real() + 48 * 3600 * 10**9)
    task = postgres.enqueue("QUICK")
    monkeypatch.undo()
    postgres.worker()
    postgres.wait_completed([task.id])
    assert postgres.get(task).state is State.COMPLETED
    # Later ids of this process stay ahead of that one by design; give the next tests theirs back.
    monkeypatch.setattr("redrive.ids._last", 0)
    assert postgres.account([task.id]) == {"completed": 1}
