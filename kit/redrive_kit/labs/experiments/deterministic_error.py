"""Lab 3: an event whose op nobody knows fails at once, alone, and is not tried again."""

from __future__ import annotations

from redrive_kit.labs.database import Database
from redrive_kit.labs.lab_run import Experiment, LabRun

EVENTS = 20
OP = "not-a-real-op"
REASON = "deterministic_exception"
METRIC = f"outbox_terminal_failed_total{{{REASON}}}"


async def run(lab: LabRun, _: float) -> None:
    world = lab.world
    await world.worker("first")
    before = await lab.look("before")
    await Database(world.url).publish(world.projection, world.mark, "poison", OP)
    lab.note(f"a row with op='{OP}' was put in by SQL, among others")
    await world.publish(EVENTS)
    await lab.until(
        "it is failed, and all others are done", "during", lambda now: now.failed == 1 and now.done == EVENTS
    )
    [event] = await world.events("failed")
    lab.expect("attempts 1", event["attempts"] == 1, event["attempts"])
    lab.expect("no next retry", event["next_retry_at"] is None, event["next_retry_at"])
    lab.expect(f"error_reason {REASON}", event["error_reason"] == REASON, event["error_reason"])
    lab.expect("the error names the op", str(event["error"]).endswith(f"Unknown outbox op: '{OP}'"), event["error"])
    count = before.metrics.get(METRIC, 0.0)
    await lab.until(f"{METRIC} +1", "after", lambda now: now.metrics.get(METRIC, 0.0) == count + 1)
    await lab.same_as_source()


DETERMINISTIC_ERROR = Experiment(
    3,
    "deterministic error",
    f"failed, attempts 1, no next retry, {REASON}, terminal_failed_total{{reason}} +1",
    run,
)
