"""Looking at a store: the store itself, its totals and its clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

NO_CAPS: Mapping[str, int] = MappingProxyType({})

if TYPE_CHECKING:
    from redrive.kernel.circuit import CircuitRow
    from redrive.kernel.diagnosis import Diagnosis
    from redrive.kernel.figures import Figures
    from redrive.kernel.reads import Count, Overview, WorkerLeases


class HealthReads(Protocol):
    """The store itself, its totals and its clock."""

    async def now(self) -> datetime: ...

    async def identity(self) -> str:
        """Returns what tells this store from all others at this moment, however its URL is written."""

    async def diagnose(self) -> Diagnosis:
        """Returns the store's figures about itself, by a handful of statements that read no more rows than they have
        to."""

    async def oldest_kinds(self) -> dict[str, datetime]:
        """Returns since when the first runnable task of each kind waits, as far as it is among the first 100 of its
        queue: kinds behind these are left out."""

    async def vitals(self) -> dict[str, int]:
        """Returns figures whose trend matters: ``size`` in bytes, ``dead:table`` for rows that await removal."""

    async def figures(self) -> Figures:
        """Returns what the fleet is measured by, by one statement that costs no more than there are kinds, workers and
        schedules."""

    async def overdue(
        self, ages: Mapping[str, float], but: Sequence[str] = (), most: Mapping[str, int] = NO_CAPS
    ) -> dict[str, int]:
        """Returns how many tasks of each of these queues could run and have waited for that many seconds, kinds ``but``
        left out: among the first of each lane, and ``most`` of a queue at most, which is 1,000 unless it says more. So
        many or more is the same as: the ``most``-th oldest has waited for so long."""

    async def counts(self) -> list[Count]: ...

    async def overview(self) -> Overview: ...

    async def circuits(self) -> list[CircuitRow]:
        """Returns the circuits of all kinds that have one, open or not."""

    async def leases(self) -> list[WorkerLeases]:
        """Returns who has the leases of the tasks that run now; costs no more than there are of those."""
