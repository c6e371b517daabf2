"""Expired leases go back to their queue, or to failed when their attempts are used up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.kernel.commit import Commit
from redrive.kernel.machine import ExpiredLease, Policy, settle
from redrive.kernel.outcome import Expired

if TYPE_CHECKING:
    from redrive.worker.worker import Worker


async def recover(worker: Worker) -> None:
    """No path of its own: an expired lease is an outcome like any other, and is fenced and reported like any other."""
    size = worker.settings.recovery_batch_size
    while True:
        leases = await worker.store.expired(size)
        if not leases:
            return
        transitions = [settle(lease, Expired(_passed_limit(worker, lease)), Policy(), 0.0) for lease in leases]
        applied = await worker.store.apply(Commit(transitions=transitions))
        worker.report.begin()
        for lease, transition in zip(leases, transitions, strict=True):
            if lease.id not in applied.lost:
                worker.report.recovered(lease, transition, _passed_limit(worker, lease))
        worker.report.flush()
        if len(leases) < size or len(applied.lost) == len(leases):
            return


def _passed_limit(worker: Worker, lease: ExpiredLease) -> float | None:
    """The time limit that the attempt had passed when its lease ran out; None when it was the lease alone."""
    limit = worker.attempts.limit_of(lease.kind, lease.timeout)
    return limit if limit is not None and lease.seconds > limit else None
