"""Alerts where no worker evaluates them: ``redrive up`` does, and leaves it to workers as soon as there are some."""

from __future__ import annotations

from redrive.kernel.alerts.thresholds import Limits
from redrive.kernel.duty import Duty
from redrive.kernel.ports.store import Store
from redrive.ops.alerts.evaluate import EVERY_S, SILENT_AFTER_S, Evaluator, Standby
from redrive_kit.conformance.harness import Harness

from .test_evaluate import book, later


def standing_by(harness: Harness, name: str = "up-1") -> Standby:
    async def store() -> Store:
        return harness.store

    return Standby(name, Duty("alerts", EVERY_S, Evaluator(Limits(), {}).run), store)


async def test_rules_that_nobody_evaluates_are(harness: Harness) -> None:
    up = standing_by(harness)
    assert await up.round()
    assert (await book(harness)).by == "up-1"
    await later(harness, 20)
    assert await up.round(), "it goes on with what it has begun"


async def test_they_are_left_to_workers(harness: Harness) -> None:
    await Evaluator(Limits(), {}).run(harness.store, "worker-1")
    up = standing_by(harness)
    assert not await up.round()
    await later(harness, SILENT_AFTER_S + 5)
    assert await up.round(), "the worker is gone"
    await later(harness, 20)
    assert not await standing_by(harness, "up-2").round(), "one of several is enough"
