"""Finds trace ids of somebody's tasks in what others asked for by them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from redrive.kernel.audit import AuditFilter
from redrive.kernel.ports.store import Store
from redrive.kernel.reads import Query

MOST_OF_TRACE = 100  # tasks, the newest: among so many there is one from before


def quoted_traces(value: Any) -> set[str]:
    """Returns trace ids that a document names: filters of plans, operations and prunes."""
    found: set[str] = set()
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left += one
        elif isinstance(one, dict):
            left += one.values()
            if isinstance(one.get("trace_id"), str):
                found.add(one["trace_id"])
    return found


async def traces_of(store: Store, scope: str, quoted: Iterable[str], before: datetime | None = None) -> tuple[str, ...]:
    """Returns which of these belong to tasks of this scope, as far as tasks or the audit log still know. ``before``: of
    what was there at this moment; a worker's role may add no other to an erasure."""
    found: list[str] = []
    for trace in sorted(quoted):
        known = await store.find(Query(scope=scope, trace_id=trace, limit=MOST_OF_TRACE, brief=True))
        if any(before is None or (task.created_at or before) < before for task in known) or await store.audit(
            AuditFilter(scope=scope, trace_id=trace, until=before), limit=1
        ):
            found.append(trace)
    return tuple(found)
