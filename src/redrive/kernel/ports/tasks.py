"""Looking at a store: tasks, live and finished, with what belongs to them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from redrive.kernel.failed import TaskStatus
    from redrive.kernel.joins import Join
    from redrive.kernel.reads import LetterCount, Query, RetryCount
    from redrive.kernel.task import DeadLetter, Task, Timeline

MOST_ENTRIES = 500  # of a task's timeline: a task may have a million attempts


class TaskReads(Protocol):
    """Tasks, live and finished, with what belongs to them."""

    async def get_many(self, task_ids: Collection[UUID], *, documents: int | None = None) -> dict[UUID, Task]:
        """Returns those of these tasks that exist, in the order asked for; ``documents`` as in ``Query``."""

    async def statuses(self, task_ids: Collection[UUID]) -> dict[UUID, TaskStatus]:
        """Returns the states of those of these tasks that exist, without payloads."""

    async def find(self, query: Query) -> list[Task]: ...

    async def timeline(self, task_id: UUID, *, documents: int | None = None) -> Timeline | None:
        """Returns a task and the latest ``MOST_ENTRIES`` of its attempts, dead letters and audit rows."""

    async def dead_letters(self, query: Query) -> list[DeadLetter]: ...

    async def letter_counts(self) -> list[LetterCount]:
        """Returns how many dead letters there are, per queue and kind, from totals that are kept."""

    async def retry_counts(self, bulk_id: str) -> list[RetryCount]:
        """Returns what became of the tasks of a bulk retry, from totals that are kept with their moves."""

    async def joins(self, join_ids: Collection[UUID]) -> list[Join]:
        """Returns those of these joins that exist, in any order."""

    async def personal(self, scope: str | None, task_ids: Collection[UUID] = ()) -> dict[str, int]:
        """Returns how much is kept about a scope, or about tasks, by place; tasks that run now are counted apart."""

    async def erasable(self, scope: str, limit: int) -> list[UUID]:
        """Returns tasks of a scope that do not run: live, finished, or known by a dead letter only; also those that
        belong to something of the scope without carrying it, which features know."""

    async def belonging(self, scope: str, limit: int | None = None) -> list[UUID]:
        """Returns tasks, also running ones, that belong to something of a scope and are not erased, so far as features
        know them; whether they carry the scope themselves or not."""


async def get_task(store: TaskReads, task_id: UUID) -> Task | None:
    """Returns one task, live or finished; None when there is none."""
    return (await store.get_many([task_id])).get(task_id)
