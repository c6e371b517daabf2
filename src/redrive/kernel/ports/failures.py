"""Looking at a store: what is failed now or was given up, and by which causes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from redrive.kernel.failed import FailedCount, FailedRef, FailureFilter
    from redrive.kernel.reads import CauseMember, CauseOrder, CauseRanking, CauseRow
    from redrive.kernel.task import Task


class FailureReads(Protocol):
    """What is failed now or was given up, and by which causes."""

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
        self, which: FailureFilter, *, limit: int, after: int = 0, upto: int | None = None
    ) -> list[FailedRef]:
        """Returns the same as ``failed``, without what the tasks carry."""

    async def count_causes(self, which: FailureFilter, most: int) -> dict[str, int]:
        """Returns how many tasks are failed now by each cause, by its fingerprint; of ``most`` tasks, those that failed
        last."""

    async def count_failed(self, which: FailureFilter, most: int | None = None, upto: int | None = None) -> int:
        """Returns how many tasks are failed now. By totals where the filter is of these; else rows are counted, no
        further than ``most``, and only those whose ``failed_seq`` is not above ``upto``."""

    async def failed_counts(self, fingerprints: Sequence[str] | None = None) -> list[FailedCount]:
        """Returns totals of failed tasks, the largest first; of all causes without ``fingerprints``."""

    async def failed_end(self, which: FailureFilter, most: int | None = None) -> tuple[int, int]:
        """Returns the highest ``failed_seq`` so far, and how many up to it match. What fails later has a higher one.
        Where rows have to be counted, no more than ``most`` are."""

    async def failed_sums(self, limit: int) -> dict[str, dict[str, int]]:
        """Returns how many tasks are failed now, by ``total``, ``kind``, ``queue``, ``group``, ``code``, ``type``,
        ``reason`` (why they are dead) and ``cause``: the ``limit`` largest of each."""

    async def cancelled(
        self, which: FailureFilter, *, limit: int, offset: int = 0, after: int = 0, upto: int | None = None
    ) -> list[FailedRef]:
        """Returns tasks that were given up and whose last dead letter matches, in the order of these letters;
        ``failed_seq``, ``after`` and ``upto`` are numbers of letters."""

    async def cancelled_end(self, which: FailureFilter) -> tuple[int, int]:
        """Returns the number of the last dead letter so far, and how many up to it match."""

    async def causes(
        self, limit: int, *, before: tuple[datetime, str] | None = None, failing: bool | None = None
    ) -> list[CauseRow]:
        """Returns causes, the latest first; ``before`` is ``last_seen`` and ``fingerprint`` of the last one
        seen. ``failing``: only those by which tasks are failed now, or (False) none is; what changed this moment may
        come along."""

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

    async def causes_named(self, prefix: str, limit: int) -> list[str]:
        """Returns fingerprints of causes that begin so, or whose newer name does."""

    async def cause_members(self, fingerprint: str, limit: int) -> list[CauseMember]:
        """Returns tasks that are failed by a cause now, those that failed last."""

    async def causes_of(self, fingerprints: Sequence[str]) -> list[CauseRow]:
        """Returns those of these causes that exist, in any order."""

    async def trends(self, fingerprints: Sequence[str], since: datetime) -> dict[str, list[tuple[datetime, int]]]:
        """Returns failures per hour of these causes, oldest first; hours without one are left out."""
