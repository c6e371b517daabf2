"""Tasks that are run elsewhere: claimed, kept alive and reported over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from redrive.kernel.outcome import Outcome
from redrive.kernel.task import Claimed, Task, check_name, check_text
from redrive.ops import actions, executor
from redrive.ops.access import Role
from redrive.ops.operator.session import Service

MAX_PROGRESS_BYTES = 16_384


class ExecutorService(Service):
    async def claim(
        self, worker_id: str, queues: Sequence[str], count: int, lease: float, kinds: Sequence[str] | None = None
    ) -> list[Claimed]:
        """Lease tasks; each comes with the token to report by."""
        who = self._session.may(Role.OPERATOR)
        names = tuple(check_name(name, "queue") for name in dict.fromkeys(queues))
        wanted = None if kinds is None else tuple(check_name(name, "kind") for name in kinds)
        return await executor.claim(
            self._store, check_text(worker_id, "worker id") or who, names, count, lease, wanted
        )  # fmt: skip

    async def heartbeat(self, task_id: UUID, token: UUID, lease: float, progress: Any = None) -> None:
        """Keep the lease; LeaseLost says that the work is to be stopped."""
        self._session.may(Role.OPERATOR)
        text = None if progress is None else executor.stored(progress, "progress", MAX_PROGRESS_BYTES)
        await executor.heartbeat(self._store, task_id, token, lease, text)

    async def report(self, task_id: UUID, token: UUID, said: Outcome, ms: float | None = None) -> Task:
        """The outcome of an attempt, fenced by its token."""
        self._session.may(Role.OPERATOR)
        task = await actions.require(self._store, task_id, self._session.documents)
        handler = self._session.registry.handlers.get(task.kind)
        await executor.report(
            self._store, task, token, said, policy=None if handler is None else handler.policy,
            backoff=self._session.policy.backoff, ms=ms,
        )  # fmt: skip
        return await actions.require(self._store, task_id, self._session.documents)
