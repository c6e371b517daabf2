"""Expired leases go back to their queue, or to failed when their attempts are used up (T6)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from redrive.kernel.commit import Commit
from redrive.kernel.machine import Policy, settle
from redrive.kernel.outcome import Expired

if TYPE_CHECKING:
    from redrive.worker.worker import Worker

logger = logging.getLogger("redrive.maintenance")


async def recover(worker: Worker) -> None:
    """No path of its own: an expired lease is an outcome like any other, and is fenced like any other."""
    size = worker.settings.recovery_batch_size
    while True:
        held = await worker.store.expired(size)
        if not held:
            return
        transitions = [settle(lease, Expired(), Policy(), 0.0) for lease in held]
        applied = await worker.store.apply(Commit(transitions=transitions))
        for lease, transition in zip(held, transitions, strict=True):
            if lease.id not in applied.lost:
                worker.health.recovered += 1
                logger.warning(
                    "lease of %s expired; now %s", lease.id, transition.to.value,
                    extra={"event": "task.recovered", "task_id": str(lease.id), "attempt": lease.attempt,
                           "held_by": lease.worker_id, "worker_id": worker.id, "state": transition.to.value},
                )  # fmt: skip
        if len(held) < size or len(applied.lost) == len(held):
            return
