"""Lab 2: the sink is stopped for a while; events wait and are tried again, ever more slowly, until it is back."""

from __future__ import annotations

import asyncio
import math
import time

from redrive.outbox.settings import OutboxSettings
from redrive_kit.labs.facts import Facts
from redrive_kit.labs.lab_run import PATIENCE_S, Experiment, LabRun

EVENTS = 50
RETRIES, TERMINAL = "outbox_retry_scheduled_total", "outbox_terminal_failed_total"


async def run(lab: LabRun, outage: float) -> None:
    world = lab.world
    worker = await world.worker("first")
    await world.publish(EVENTS)
    before = await lab.until("events are done while the sink is there", "before", lambda now: now.done == EVENTS)
    await world.sink.stop()
    lab.note(f"the sink is stopped for {outage:g} s")
    down = time.monotonic()
    await world.publish(EVENTS)
    early = await lab.until("events wait for another attempt", "soon after", _scheduled)
    await asyncio.sleep(max(0.0, down + outage - time.monotonic()))
    late = await lab.until("and still do at the end of the outage", f"after {outage:g} s", _scheduled)
    seconds = time.monotonic() - down
    _grown(lab, before, early, late)
    _slow(lab, late, seconds)
    reasons = {one.reason for one in late.waiting if one.attempts}
    lab.expect("error_reason is connect", reasons == {"connect"}, ", ".join(map(str, reasons)))
    terminal = [_sum(one, TERMINAL) for one in (before, late)]
    lab.expect("terminal failures do not grow", terminal[0] == terminal[1] and not late.failed, f"{terminal[1]:g}")
    for line in worker.logged("outbox.bulk_failures")[-1:]:
        lab.log({name: line[name] for name in ("event", "projection", "failures", "of")})
    await world.sink.start()
    lab.note("the sink is started")
    back = time.monotonic()
    longest = world.app.settings.of(OutboxSettings).max_backoff_seconds
    after = await lab.until(
        "it recovers by itself", "after", lambda now: now.lag == 0 and now.done == 2 * EVENTS, longest + PATIENCE_S
    )
    lab.note(f"all was in the sink {time.monotonic() - back:.1f} s after it was back (longest backoff {longest:g} s)")
    lab.expect("nothing failed", not after.failed, after.words())
    await lab.same_as_source()


def _scheduled(now: Facts) -> bool:
    """Some may be under way at any moment: those that are not tell when they are tried next. Metrics come a moment
    after what they count."""
    waits = any(one.next_retry_at and one.attempts for one in now.waiting)
    return waits and now.lag == EVENTS and _sum(now, RETRIES) > 0


def _grown(lab: LabRun, before: Facts, early: Facts, late: Facts) -> None:
    counts = [_sum(one, RETRIES) for one in (before, early, late)]
    lab.expect("retry_scheduled_total grows", counts[0] < counts[1] < counts[2], " → ".join(f"{n:g}" for n in counts))
    first, last = (max(one.next_retry_at or "" for one in now.waiting) for now in (early, late))
    lab.expect("next_retry_at moves out", first < last, f"{first} → {last}")


def _slow(lab: LabRun, late: Facts, seconds: float) -> None:
    """Waits double, at least half of each passes: so many attempts fit into the outage at most."""
    own = lab.world.app.settings.of(OutboxSettings)
    doubling = math.log2(max(2 * seconds / own.base_backoff_seconds, 1) + 1)
    steady = 2 * seconds / own.max_backoff_seconds
    most = math.ceil(doubling + steady) + 1
    lab.expect(
        "attempts grow slowly",
        1 <= late.most_attempts <= most,
        f"{late.most_attempts} attempts in {seconds:.0f} s, at most {most} by their backoff",
    )


def _sum(facts: Facts, name: str) -> float:
    return sum(value for one, value in facts.metrics.items() if one.partition("{")[0] == name)


SINK_DOWN = Experiment(
    2,
    "sink down → retry",
    "retries are scheduled, next_retry_at moves out, attempts grow slowly, error_reason=connect; it recovers",
    run,
    quick={"OUTBOX_BASE_BACKOFF_SECONDS": "0.5", "OUTBOX_MAX_BACKOFF_SECONDS": "2"},
    seconds=30,
    quick_seconds=5,
)
