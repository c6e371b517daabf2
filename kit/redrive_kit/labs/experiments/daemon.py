"""Lab 6: a worker is told to stop under load; its health says so; and each alert rule fires and ends."""

from __future__ import annotations

import asyncio
import signal
import time

from redrive.kernel.alerts.thresholds import Thresholds
from redrive_kit.labs.experiments.alert_rules import fire_and_end
from redrive_kit.labs.lab_run import PATIENCE_S, Experiment, LabRun
from redrive_kit.labs.network import Answer
from redrive_kit.labs.workers import OutboxWorker

EVENTS = 400
BATCH = 20
SLOW_S = 6.0  # a request of the sink: long enough for a look at the worker while it ends
SHORT = {
    "OUTBOX_RECLAIM_INTERVAL_SECONDS": "1",
    "OUTBOX_BATCH": str(BATCH),
    "OUTBOX_OLDEST_ALERT_SECONDS": "3",
    "OUTBOX_ALERT_HOLD_SECONDS": "2",
    "OUTBOX_BASE_BACKOFF_SECONDS": "0.5",
    "OUTBOX_MAX_BACKOFF_SECONDS": "2",
}


async def run(lab: LabRun, patience_of_rules: float) -> None:
    await _sigterm(lab)
    await fire_and_end(lab, longest_hold=patience_of_rules)


async def _sigterm(lab: LabRun) -> None:
    world = lab.world
    worker = await world.worker("first")
    await _flips_with_the_sink(lab, worker)
    await world.sink.slow(SLOW_S)
    await world.publish(EVENTS)
    loaded = await lab.until(
        "under load", "at the SIGTERM", lambda now: now.processing >= BATCH and now.pending > 0, gauges=()
    )
    worker.send(signal.SIGTERM)
    lab.note(f"SIGTERM to {worker.pid}")
    health, ready = await asyncio.gather(*(_while_stopping(worker, path) for path in ("/healthz", "/readyz")))
    lab.expect("/healthz says that it is stopping", '"stopping"' in health.text, f"{health.status} {health.text[:60]}")
    lab.expect("/readyz flips", ready.status == 503 and "stopping" in ready.text, f"{ready.status} {ready.text[:80]}")
    code = await asyncio.to_thread(worker.process.wait, PATIENCE_S)
    lab.expect("exit code 0", code == 0, code)
    gone = await worker.ask("/healthz")
    lab.expect("/healthz is gone with the process", gone.status == 0, gone.status)
    ended = await lab.look("ended")
    lab.expect("what ran has finished or gone back", ended.processing == 0, ended.words())
    more = ended.done - loaded.done  # a request that ended between the look and the signal made room for another
    lab.expect("claims stop", ended.pending > 0 and more <= 2 * loaded.processing, f"{more} done after the signal")
    lab.expect("nothing is stuck, nothing failed", ended.stuck == 0 and not ended.failed, ended.words())
    await world.sink.slow(0)
    second = await world.worker("second")
    await lab.until("the next worker finishes the rest", "after", lambda now: now.lag == 0 and now.done == EVENTS + 1)
    await lab.same_as_source()
    await asyncio.to_thread(second.stop)


async def _flips_with_the_sink(lab: LabRun, worker: OutboxWorker) -> None:
    """A worker whose sink is gone is alive, and not ready."""
    await lab.world.publish(1)  # only a sink that is in use is asked
    await lab.until("the first event is done", "before", lambda now: now.lag == 0 and now.done == 1)
    await lab.world.sink.stop()

    async def is_ready() -> bool:
        return (await worker.ask("/readyz")).status == 200

    async def is_unready() -> bool:
        return (await worker.ask("/readyz")).status == 503

    await lab.wait_for("/readyz is 503 while the sink is down", is_unready)
    alive = await worker.ask("/healthz")
    lab.expect("/healthz is 200 meanwhile", alive.status == 200, alive.status)
    await lab.world.sink.start()
    await lab.wait_for("/readyz is 200 when it is back", is_ready)


async def _while_stopping(worker: OutboxWorker, path: str) -> Answer:
    """Returns what it says between the signal and its end: as soon as it says that it stops, else the last of it."""
    last = Answer(0, "nobody answered")
    give_up = time.monotonic() + PATIENCE_S
    while worker.alive and time.monotonic() < give_up:
        found = await worker.ask(path)
        last = found if found.status else last
        if "stopping" in last.text:
            break
        await asyncio.sleep(0.02)
    return last


DAEMON = Experiment(
    6,
    "daemon: SIGTERM, health, alerts",
    "claims stop, running finish or go back, exit 0, nothing stuck; /healthz, /readyz flip; alerts fire and resolve",
    run,
    full={"OUTBOX_LEASE_SECONDS": "5", **SHORT},
    quick={"OUTBOX_LEASE_SECONDS": "2", **SHORT},
    seconds=60,
    thresholds=Thresholds(
        failed_for=2.0, depth=10, depth_for=2.0, pending_age=3.0, oldest_age=3.0, no_worker_for=2.0, off=["surge"]
    ),
)
