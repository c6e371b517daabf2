"""Recovers tasks whose leases ran out: back to their queue, or failed when their attempts are used up."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from redrive.errors import RedriveError
from redrive.kernel.applied import Applied
from redrive.kernel.commit import Commit
from redrive.kernel.machine import ExpiredLease, Policy, Transition, settle
from redrive.kernel.outcome import Expired
from redrive.kernel.ports.store import Store
from redrive.kernel.task import Task
from redrive.worker.report import Report
from redrive.worker.time_limits import TimeLimits

logger = logging.getLogger("redrive.hooks")
LONGEST_READ = 100_000  # bytes of a payload: of a longer one nobody is told its public fields
# So many that are refused are passed by in one run, to reach those behind them.
MOST_REFUSED = 500


class Recovery:
    """Settles expired leases of tasks of one feature, or of those that belong to none. It has no path of its own: an
    expired lease is an outcome like any other, fenced and reported like any other."""

    def __init__(
        self,
        leases_at_once: int,
        report: Report,
        limits: TimeLimits,
        policy: Callable[[str], Policy],
        feature: str | None = None,
        told: Sequence[Callable[[Sequence[tuple[str, bool]]], None]] = (),
    ) -> None:
        self._features_told = told
        self._feature = feature
        self._policy = policy
        self._leases_at_once = leases_at_once
        self._report = report
        self._limits = limits
        self._told: set[tuple[UUID, UUID]] = set()  # leases whose end is refused: each is told of once

    async def run(self, store: Store, worker_id: str, stopping: Callable[[], bool]) -> None:
        at_once = self._leases_at_once
        refused: set[UUID] = set()  # they stay where they are; others are behind them
        while len(refused) <= MOST_REFUSED:
            found = await store.expired(at_once + len(refused), self._feature)
            leases = [lease for lease in found if lease.id not in refused]
            if not leases:
                return
            transitions = [
                settle(lease, Expired(self._passed_limit(lease)), self._policy(lease.kind), random.random())  # noqa: S311 (no secret)
                for lease in leases
            ]
            applied = await store.apply(Commit(transitions=transitions))
            self._tell(leases, transitions, applied, await self._tasks(store, leases))
            refused |= applied.refused.keys()
            if len(leases) < at_once or (len(applied.lost) == len(leases) and not applied.refused):
                return

    async def _tasks(self, store: Store, leases: Sequence[ExpiredLease]) -> Mapping[UUID, Task]:
        """Returns the tasks themselves, where somebody wants to know more than a lease says. They are taken back by
        now: that they cannot be read is no reason to tell nobody."""
        if not self._report.wants_recovered:
            return {}
        try:
            return await store.get_many([lease.id for lease in leases], documents=LONGEST_READ)
        except RedriveError as error:
            logger.warning("hooks are told without labels: %s", error, extra={"event": "hook.no_labels"})
            return {}

    def _tell(
        self,
        leases: Sequence[ExpiredLease],
        transitions: Sequence[Transition],
        applied: Applied,
        tasks: Mapping[UUID, Task],
    ) -> None:
        self._report.begin()
        for lease, transition in zip(leases, transitions, strict=True):
            if lease.id not in applied.lost:
                instead, limit = applied.instead.get(lease.id), self._passed_limit(lease)
                self._report.recovered(lease, transition, instead, limit, tasks.get(lease.id))
            elif lease.id in applied.refused and (lease.id, lease.token) not in self._told:
                self._report.not_recovered(lease, applied.refused[lease.id])
                self._told.add((lease.id, lease.token))
        self._report.flush()
        taken = [(one.kind, self._passed_limit(one) is not None) for one in leases if one.id not in applied.lost]
        for tell in self._features_told if taken else ():
            tell(taken)

    def _passed_limit(self, lease: ExpiredLease) -> float | None:
        """Returns the time limit that the attempt had passed when its lease ran out; None when it was the lease
        alone."""
        limit = self._limits.of_kind(lease.kind, lease.timeout)
        return limit if limit is not None and lease.seconds > limit else None
