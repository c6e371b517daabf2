"""Executors over HTTP: claim, heartbeat, report."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from redrive.errors import StoreError
from redrive.kernel.outcome import Outcome
from redrive.kernel.task import MAX_PAYLOAD_BYTES, Claimed, Task, check_name, check_text
from redrive.ops import actions, executor
from redrive.ops.access import Role
from redrive.ops.operator.session import Service
from redrive.ops.pages import PAGE_BUDGET_CHARS

MAX_PROGRESS_BYTES = 16_384
FIRST_CLAIM = 16


async def within_budget(count: int, claim: Callable[[int], Awaitable[list[Claimed]]]) -> list[Claimed]:
    """Claims up to ``count`` tasks, or as many as their payloads leave room for: those not claimed stay for the next
    call."""
    found = await claim(min(count, FIRST_CLAIM))
    carried = sum(len(task.payload or "") for task in found)
    more = min(count - len(found), (PAGE_BUDGET_CHARS - carried) * len(found) // max(carried, 1))
    if len(found) == FIRST_CLAIM and more > 0:
        with suppress(StoreError):  # what is claimed is claimed, and has to be told
            found += await claim(more)
    return found


# Longer than any document that was let in; the text of one may be a little longer than it was written.
LONGEST_PAYLOAD_CHARS = 4 * MAX_PAYLOAD_BYTES


class ExecutorService(Service):
    async def claim(
        self, worker_id: str, queues: Sequence[str], count: int, lease: float, kinds: Sequence[str] | None = None
    ) -> list[Claimed]:
        """Leases tasks; each comes with the token to report by."""
        who = self._session.may(Role.OPERATOR)
        names = tuple(check_name(name, "queue") for name in dict.fromkeys(queues))
        wanted = None if kinds is None else tuple(check_name(name, "kind") for name in kinds)
        named = check_text(worker_id, "worker id") or who

        async def claim(number: int) -> list[Claimed]:
            return await executor.claim(self._store, named, names, number, lease, wanted)

        return await within_budget(count, claim)

    async def heartbeat(self, task_id: UUID, token: UUID, lease: float, progress: Any = None) -> list[UUID]:
        """Renews the lease; LeaseLost says that the work is to be stopped. Returns the task if somebody wants it
        cancelled."""
        self._session.may(Role.OPERATOR)
        text = None if progress is None else executor.stored(progress, "progress", MAX_PROGRESS_BYTES)
        return await executor.heartbeat(self._store, task_id, token, lease, text)

    async def report(self, task_id: UUID, token: UUID, said: Outcome, ms: float | None = None) -> Task:
        """Settles an attempt, fenced by its token."""
        self._session.may(Role.OPERATOR)
        # Its payload as text, however long: what may be shown of a failure depends on what the task was given.
        task = await actions.require(self._store, task_id, LONGEST_PAYLOAD_CHARS)
        handler = self._session.registry.handlers.get(task.kind)
        await executor.report(
            self._store,
            task,
            token,
            said,
            policy=None if handler is None else handler.policy,
            backoff=self._session.policy.backoff,
            ms=ms,
        )
        return await actions.require(self._store, task_id, self._session.documents)
