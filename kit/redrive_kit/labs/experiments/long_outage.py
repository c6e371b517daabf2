"""Lab 4: the sink is down for longer than events are tried: they are failed, and that is the end of it."""

from __future__ import annotations

import asyncio

from redrive.outbox.settings import OutboxSettings
from redrive_kit.labs.lab_run import Experiment, LabRun

EVENTS = 20
RETRIES = "outbox_retry_scheduled_total"


async def run(lab: LabRun, calm: float) -> None:
    world = lab.world
    await world.worker("first")
    most = world.app.settings.of(OutboxSettings).max_attempts
    await world.sink.stop()
    lab.note("the sink is stopped, and stays so")
    await lab.look("before")
    await world.publish(EVENTS)
    ended = await lab.until(
        "all are failed",
        "during",
        lambda now: now.failed == EVENTS and now.metrics.get("outbox_terminal_failed_total{connect}", 0) == EVENTS,
    )
    attempts = {event["attempts"] for event in await world.events("failed")}
    lab.expect(f"attempts = {most}", attempts == {most}, sorted(attempts))
    await asyncio.sleep(calm)
    after = await lab.look(f"{calm:g} s later")
    again = {event["attempts"] for event in await world.events("failed")}
    scheduled = [one.metrics.get(RETRIES, 0.0) for one in (ended, after)]
    seen = f"attempts {sorted(again)}, {RETRIES} {scheduled[0]:g} → {scheduled[1]:g}"
    lab.expect("no endless retry", again == {most} and scheduled[0] == scheduled[1] and not after.lag, seen)


LONG_OUTAGE = Experiment(
    4,
    "sink down for long",
    "attempts = 3, failed, no endless retry",
    run,
    full={"OUTBOX_MAX_ATTEMPTS": "3", "OUTBOX_BASE_BACKOFF_SECONDS": "0.2", "OUTBOX_MAX_BACKOFF_SECONDS": "1.0"},
    quick={"OUTBOX_MAX_ATTEMPTS": "3", "OUTBOX_BASE_BACKOFF_SECONDS": "0.2", "OUTBOX_MAX_BACKOFF_SECONDS": "1.0"},
    seconds=10,
    quick_seconds=3,
)
