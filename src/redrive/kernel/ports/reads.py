"""What operators, faces and their duties read from a store; nothing of it is asked while tasks are claimed and
settled."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from redrive.kernel.audit import AuditFilter
    from redrive.kernel.diagnosis import Diagnosis
    from redrive.kernel.failure_filter import FailedCount, FailedRef, FailureFilter, TaskStatus
    from redrive.kernel.figures import Figures
    from redrive.kernel.joins import Join
    from redrive.kernel.reads import (
        CauseMember,
        CauseOrder,
        CauseQuery,
        CauseRanking,
        CauseRow,
        Count,
        LetterCount,
        Overview,
        Query,
        RetryCount,
        WorkerLeases,
    )
    from redrive.kernel.records import Record
    from redrive.kernel.series import SeriesQuery, SeriesRow
    from redrive.kernel.task import AuditRow, DeadLetter, Task, Timeline

MOST_ENTRIES = 500  # of a task's timeline: a task may have a million attempts
NO_CAPS: Mapping[str, int] = MappingProxyType({})


class WorkerReads(Protocol):
    """What workers have to know, too: when they start, recover tasks, or meet one that killed others."""

    async def get_many(self, task_ids: Collection[UUID], *, documents: int | None = None) -> dict[UUID, Task]:
        """Returns those of these tasks that exist, in the order asked for; ``documents`` as in ``Query``."""

    async def statuses(self, task_ids: Collection[UUID]) -> dict[UUID, TaskStatus]:
        """Returns the states of those of these tasks that exist, without payloads."""

    async def records(
        self,
        collection: str,
        *,
        states: Sequence[str] = (),
        ids: Sequence[str] | None = None,
        limit: int = 100,
        before: int | None = None,
    ) -> list[Record]:
        """Returns documents newest first; ``before`` is the ``seq`` of the last one seen."""

    async def overview(self) -> Overview:
        """Returns the small tables as a whole, workers by their ids."""


class ReadStore(WorkerReads, Protocol):
    """Looks at what a store has. Each call sees one moment; none changes anything."""

    # -- tasks, live and finished, with what belongs to them ---------------------------------------------------------

    async def find(self, query: Query) -> list[Task]:
        """Returns tasks, live and finished, by their ids, the highest first: ids are made in the order of time."""

    async def timeline(self, task_id: UUID, *, documents: int | None = None) -> Timeline | None:
        """Returns a task and the latest ``MOST_ENTRIES`` of its attempts, dead letters and audit rows."""

    async def dead_letters(self, query: Query) -> list[DeadLetter]: ...

    async def joins(self, join_ids: Collection[UUID]) -> list[Join]:
        """Returns those of these joins that exist, in any order."""

    # -- what is failed now or was given up --------------------------------------------------------------------------

    async def failed(
        self,
        which: FailureFilter,
        *,
        limit: int,
        offset: int = 0,
        after: int = 0,
        upto: int | None = None,
        newest: bool = False,
        documents: int | None = None,
    ) -> list[Task]:
        """Returns tasks that are failed now, in the order they failed; ``after`` and ``upto`` are values of
        ``failed_seq``."""

    async def failed_ids(
        self,
        which: FailureFilter,
        *,
        limit: int,
        offset: int = 0,
        after: int = 0,
        upto: int | None = None,
        cancelled: bool = False,
    ) -> list[FailedRef]:
        """Returns the same as ``failed``, without what the tasks carry. ``cancelled``: tasks that were given up and
        whose last dead letter matches instead, in the order of these letters; ``failed_seq``, ``after`` and ``upto``
        are numbers of letters then."""

    async def failed_end(
        self, which: FailureFilter, most: int | None = None, *, cancelled: bool = False
    ) -> tuple[int, int]:
        """Returns the highest ``failed_seq`` so far, and how many up to it match. What fails later has a higher one.
        Where rows have to be counted, no more than ``most`` are. ``cancelled`` as in ``failed_ids``."""

    async def count_failed(self, which: FailureFilter, most: int | None = None, upto: int | None = None) -> int:
        """Returns how many tasks are failed now. By totals where the filter is of these; else rows are counted, no
        further than ``most``, and only those whose ``failed_seq`` is not above ``upto``."""

    async def failed_counts(self, fingerprints: Sequence[str] | None = None) -> list[FailedCount]:
        """Returns totals of failed tasks, the largest first; of all causes without ``fingerprints``."""

    async def failed_sums(self, limit: int) -> dict[str, dict[str, int]]:
        """Returns how many tasks are failed now, by ``total``, ``kind``, ``queue``, ``group``, ``code``, ``type``,
        ``reason`` (why they are dead) and ``cause``: the ``limit`` largest of each."""

    async def retry_counts(self, bulk_id: str) -> list[RetryCount]:
        """Returns what became of the tasks of a bulk retry, from totals that are kept with their moves."""

    # -- causes ------------------------------------------------------------------------------------------------------

    async def causes(self, which: CauseQuery) -> list[CauseRow]:
        """Returns causes: named ones in any order, else the latest first."""

    async def rank_causes(
        self,
        which: FailureFilter,
        limit: int,
        *,
        order: CauseOrder,
        since: datetime,
        after: tuple[int, str] | None = None,
        failing: bool | None = True,
        without: Sequence[str] = (),
    ) -> CauseRanking:
        """Returns causes of what is failed now and matches (a filter by which totals are kept), in an order; those of
        one rank by fingerprint. ``after``: ``key`` and ``fingerprint`` of the last one seen. ``failing``: also causes
        by which nothing that matches is failed (None), or these alone (False). ``since``: when the trend begins.
        Unfiltered and by what is failed now, it reads what it returns; else the totals of all that match."""

    async def count_causes(self, which: FailureFilter, most: int) -> dict[str, int]:
        """Returns how many tasks are failed now by each cause, by its fingerprint; of ``most`` tasks, those that failed
        last."""

    async def cause_members(self, fingerprint: str, limit: int) -> list[CauseMember]:
        """Returns tasks that are failed by a cause now, those that failed last."""

    async def trends(self, fingerprints: Sequence[str], since: datetime) -> dict[str, list[tuple[datetime, int]]]:
        """Returns failures per hour of these causes, oldest first; hours without one are left out."""

    # -- documents and the audit log ---------------------------------------------------------------------------------

    async def record(self, collection: str, record_id: str) -> Record | None: ...

    async def audit(
        self,
        which: AuditFilter,
        *,
        limit: int,
        offset: int = 0,
        before: int | None = None,
        after: int | None = None,
        documents: int | None = None,
    ) -> list[AuditRow]:
        """Returns audit rows newest first, from ``before`` on; with ``after`` oldest first, beyond it."""

    async def count_audit(self, which: AuditFilter) -> int: ...

    # -- personal data -----------------------------------------------------------------------------------------------

    async def personal(self, scope: str | None, task_ids: Collection[UUID] = ()) -> dict[str, int]:
        """Returns how much is kept about a scope, or about tasks, by place; tasks that run now are counted apart. Rows
        of features are not among it."""

    async def erasable(self, scope: str, limit: int) -> list[UUID]:
        """Returns tasks of a scope that do not run: live, finished, or known by a dead letter only."""

    # -- the store itself, its totals and its series -----------------------------------------------------------------

    async def counts(self) -> list[Count]:
        """Returns how many tasks are in each state, per queue and kind, from totals that are kept with every move.
        Completed and cancelled ones are all that ever were, however many were pruned."""

    async def letter_counts(self) -> list[LetterCount]:
        """Returns how many dead letters there are, per queue and kind, from totals that are kept."""

    async def leases(self) -> list[WorkerLeases]:
        """Returns who has the leases of the tasks that run now; costs no more than there are of those."""

    async def figures(self) -> Figures:
        """Returns what the fleet is measured by, by one statement that costs no more than there are kinds, workers and
        schedules."""

    async def overdue(
        self, ages: Mapping[str, float], but: Sequence[str] = (), most: Mapping[str, int] = NO_CAPS
    ) -> dict[str, int]:
        """Returns how many tasks of each of these queues could run and have waited for that many seconds, kinds ``but``
        left out: among the first of each lane, and ``most`` of a queue at most, which is 1,000 unless it says more. So
        many or more is the same as: the ``most``-th oldest has waited for so long."""

    async def series(self, which: SeriesQuery) -> list[SeriesRow]:
        """Returns what was counted by the minute, the hour or the day, in any order; several rows may be about the same
        step. What workers have sent and nobody has added up yet is included."""

    async def diagnose(self, *, brief: bool = False) -> Diagnosis:
        """Returns the store's figures about itself, by a handful of statements that read no more rows than they have
        to. ``brief``: which store it is and how large, and no more."""


async def get_task(store: WorkerReads, task_id: UUID) -> Task | None:
    """Returns one task, live or finished; None when there is none."""
    return (await store.get_many([task_id])).get(task_id)
