"""Lab 1: a worker is killed with events in its hands; another one takes them back when the lease is over."""

from __future__ import annotations

import asyncio

from redrive_kit.labs.lab_run import Experiment, LabRun

EVENTS = 100
PROCESSED = "outbox_processed_total"
HANGS_S = 300.0  # how long the sink takes to answer: the worker is killed long before


async def run(lab: LabRun, _: float) -> None:
    world = lab.world
    first = await world.worker("first")
    await lab.look("before")
    await world.sink.slow(HANGS_S)
    await world.publish(EVENTS)
    lab.note("the sink hangs: what the worker has claimed stays in processing")
    await lab.until("events are in processing", "hanging", lambda now: now.processing > 0)
    await asyncio.to_thread(first.kill)
    lab.note(f"kill -9 {first.pid}")
    held = await lab.look("at the kill")  # nobody is left who could claim more
    await lab.until("stuck > 0 once the lease is over", "lease over", lambda now: now.stuck == now.processing > 0)
    await world.sink.slow(0)
    second = await world.worker("second")
    lab.note("another worker starts, and the sink answers again")
    await lab.until("stuck is 0 again", "taken back", lambda now: now.stuck == 0, gauges=["stuck"])

    async def reclaimed() -> list[dict[str, object]]:
        return second.logged("outbox.reclaimed")

    lines = await lab.wait_for("the log has outbox.reclaimed", reclaimed)
    for line in lines:
        lab.log({name: line[name] for name in ("event", "projection", "reclaimed", "lease", "max_processing")})
    taken = sum(line["reclaimed"] for line in lines)
    lab.expect(
        "all that were in processing at the kill were taken back",
        taken >= held.processing > 0,
        f"{taken} taken back, {held.processing} in processing",
    )
    await lab.until("pending and processing end at 0", "drained", lambda now: now.lag == 0)
    after = await lab.until(  # a worker counts what it has settled, a moment later
        "processed_total grows to all of them, the gauges of lag and stuck are 0",
        "after",
        lambda now: now.metrics.get(PROCESSED) == EVENTS,
    )
    lab.expect("every event is done, none is failed", after.done == EVENTS and not after.failed, after.words())
    await lab.same_as_source()


KILLED_WORKER = Experiment(
    1,
    "kill -9 a worker → reclaim",
    "processing at the kill; stuck > 0, then 0; outbox.reclaimed; all is processed in the end",
    run,
    full={"OUTBOX_LEASE_SECONDS": "10", "OUTBOX_RECLAIM_INTERVAL_SECONDS": "2", "OUTBOX_MAX_PROCESSING_SECONDS": "60"},
    quick={
        "OUTBOX_LEASE_SECONDS": "2",
        "OUTBOX_RECLAIM_INTERVAL_SECONDS": "0.5",
        "OUTBOX_MAX_PROCESSING_SECONDS": "60",
    },
)
