"""Causes of the failures that a filter selects, and how many of these each of them has."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime

from redrive.kernel.failed import FailedCount, FailureFilter
from redrive.kernel.ports.store import CauseRow, Store
from redrive.kernel.task import check_int
from redrive.ops.actions import check_states
from redrive.ops.causes import CAUSE_STATES, Cause, parse_place, with_notes

CAUSES_AT_A_TIME, MOST_PIECES = 500, 10  # no more causes are looked at
MOST_TASKS = 5000  # and where no totals are kept, no more tasks: those that failed last
Place = tuple[datetime, str]


async def causes_of(
    store: Store, which: FailureFilter, *, limit: int = 50, status: str | None = None, before: str | None = None
) -> list[Cause]:
    """Returns causes of what matches, those that were seen last first; ``failed`` is how many match. ``before`` is the
    ``place`` of the last one seen."""
    check_int(limit, "limit", 1, 500)
    if status is not None:
        check_states([status], CAUSE_STATES)
    at = None if before is None else parse_place(before)
    found = await (_by_tasks(store, which, at) if which.unsummed else _by_totals(store, which, at, limit, status))
    return [cause for cause in found if status in (None, cause.status)][:limit]


async def _by_totals(
    store: Store, which: FailureFilter, before: Place | None, limit: int, status: str | None
) -> list[Cause]:
    """Walks the causes by which tasks are failed now, until there are enough or all that match are accounted for."""
    found: list[Cause] = []
    left = await store.count_failed(which)
    async for rows in _pieces(store, which, before):
        counts: dict[str, list[FailedCount]] = defaultdict(list)
        for count in await store.failed_counts([row.fingerprint for row in rows]):
            if which.sums(count):
                counts[count.fingerprint].append(count)
        for cause in await with_notes(store, [row for row in rows if row.fingerprint in counts]):
            found.append(_narrowed(cause, counts[cause.row.fingerprint]))
            left -= found[-1].failed
        if left <= 0 or sum(status in (None, cause.status) for cause in found) >= limit:
            break
    return found


async def _pieces(store: Store, which: FailureFilter, before: Place | None) -> AsyncIterator[Sequence[CauseRow]]:
    if which.fingerprint is not None:
        rows = await store.causes_of([which.fingerprint])
        yield [row for row in rows if before is None or _place(row) < before]
        return
    for _ in range(MOST_PIECES):
        rows = await store.causes(CAUSES_AT_A_TIME, before=before, failing=True)
        if not rows:
            return
        before = _place(rows[-1])
        yield rows


def _narrowed(cause: Cause, counts: Sequence[FailedCount]) -> Cause:
    kinds: Counter[str] = Counter()
    for count in counts:
        kinds[count.kind] += count.n
    return replace(cause, failed=kinds.total(), kinds=dict(kinds.most_common()))


async def _by_tasks(store: Store, which: FailureFilter, before: Place | None) -> list[Cause]:
    """Counts tasks by cause: by scopes, traces, times and operations no totals are kept."""
    counts = Counter(await store.count_causes(which, MOST_TASKS))
    more = counts.total() >= MOST_TASKS and await store.count_failed(which, MOST_TASKS + 1) > MOST_TASKS
    rows = await store.causes_of([name for name, _ in counts.most_common(CAUSES_AT_A_TIME)])
    rows.sort(key=_place, reverse=True)
    behind = [row for row in rows if before is None or _place(row) < before]
    noted = await with_notes(store, behind)
    return [replace(cause, failed=counts[cause.row.fingerprint], at_least=more) for cause in noted]


def _place(row: CauseRow) -> Place:
    return row.last_seen, row.fingerprint
