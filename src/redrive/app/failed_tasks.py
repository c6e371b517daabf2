"""``app.failed``: the failed tasks of an application, from its own code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.ports.store import Store
from redrive.kernel.task import Task
from redrive.ops import actions, failures
from redrive.ops.allowance import UNRESTRICTED
from redrive.ops.failures import FailureStats
from redrive.ops.inspect import parse_id
from redrive.ops.operations.retry import RetryResult, retry_matching


class FailedTasks:
    """Filters are the fields of a failed task: ``kind``, ``queue``, ``group``, ``scope``, ``trace_id``, ``error_code``,
    ``error_reason``, ``failure_type``, ``dead_reason``, ``fingerprint``; ``since`` and ``until`` (``"1h"``, or a time
    in ISO form) are about when they failed."""

    def __init__(self, store: Callable[[], Awaitable[Store]]) -> None:
        self._store = store

    async def list(self, limit: int = 50, offset: int = 0, **which: str) -> list[Task]:
        """Returns failed tasks, the latest first."""
        return await failures.list_failed(
            await self._store(), failures.parse_filter(**which), limit=limit, offset=offset
        )

    async def count(self, **which: str) -> int:
        return await (await self._store()).count_failed(failures.parse_filter(**which))

    async def retry(self, task_id: UUID | str, *, actor: str = "app", reason: str | None = None) -> bool:
        """Retries one task; returns whether it was retried, which it is not if it is neither failed nor cancelled.
        ``retry_many`` says why not. A task that nobody knows is an error."""
        result = await actions.retry(await self._store(), [parse_id(str(task_id))], actor=actor, reason=reason)
        if "not found" in result.skipped.values():
            actions.insist(result, "retried")
        return bool(result.done)

    async def retry_many(
        self, task_ids: Sequence[UUID | str], *, actor: str = "app", reason: str | None = None
    ) -> RetryResult:
        """Retries up to 500 tasks; returns which were retried, and of each of the others why not."""
        ids = tuple(parse_id(str(task_id)) for task_id in task_ids)
        return await retry_matching(
            await self._store(), FailureFilter(ids=ids), actor=actor, rule=UNRESTRICTED, reason=reason
        )

    async def statistics(self) -> FailureStats:
        """Returns totals: all, by kind, group, code, type, dead reason and fingerprint. They are kept, so nothing is
        counted."""
        return await failures.statistics(await self._store())
