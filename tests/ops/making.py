"""Failures to operate on."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from redrive.kernel.outcome import Completed, Fail, Outcome
from redrive.kernel.task import Claimed
from redrive_kit.conformance.harness import TERMINAL, Harness

OTHER = Fail("TASK_PAYLOAD_INVALID", "no such shot")


async def fail(
    harness: Harness, count: int = 1, outcome: Outcome = TERMINAL, kind: str = "A", **options: Any
) -> list[UUID]:
    """Tasks that failed in this order."""
    ids = await harness.enqueue_many(count, kind, max_attempts=1, **options)
    claimed = {task.id: task for task in await harness.claim(count, queues=(options.get("queue", "default"),))}
    for task_id in ids:
        assert await harness.settle(claimed[task_id], outcome)
    return ids


async def held(harness: Harness) -> Claimed:
    """A task that runs on w1, for ten minutes unless it beats."""
    await harness.enqueue()
    return await harness.claim_one(lease=600.0)


async def run(harness: Harness, outcome: Outcome | None = None, count: int = 1000) -> list[UUID]:
    """Whatever is queued runs, and ends like this."""
    claimed = await harness.claim(count)
    for task in claimed:
        assert await harness.settle(task, outcome or Completed())
    return [task.id for task in claimed]
