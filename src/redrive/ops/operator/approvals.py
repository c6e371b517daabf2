"""What waits for a second operator: listed, approved, rejected."""

from __future__ import annotations

import builtins

from redrive.kernel.operation import FINAL, Action
from redrive.kernel.records import Record
from redrive.ops import approvals
from redrive.ops.access import Role
from redrive.ops.operations import lifecycle
from redrive.ops.operations.consequences import Obstacle, WaitingTasks, obstacles, waiting_tasks
from redrive.ops.operations.lifecycle import matches_of
from redrive.ops.operator.session import Service


class ApprovalService(Service):
    async def list(
        self, *, states: tuple[str, ...] = (), limit: int = 50, before: int | None = None
    ) -> builtins.list[Record]:
        """Returns approvals, newest first."""
        self._session.may(Role.VIEWER)
        return await approvals.list_approvals(self._store, states=states, limit=limit, before=before)

    async def show(self, approval_id: str) -> Record:
        self._session.may(Role.VIEWER)
        return await approvals.show(self._store, approval_id)

    async def waiting_tasks(self, record: Record) -> WaitingTasks | None:
        """Returns the waiting tasks that somebody wants to purge, as of now; None of other operations."""
        self._session.may(Role.VIEWER)
        return await waiting_tasks(self._store, record)

    async def obstacles(self, record: Record) -> builtins.list[Obstacle]:
        """Returns what would keep the tasks from running that somebody wants to retry, until they are; nothing of other
        actions."""
        self._session.may(Role.VIEWER)
        asked = record.body["operation"] if record.body["action"] == Action.RETRY else None
        if asked is None or record.state not in (approvals.PENDING, approvals.APPROVED):
            return []
        operation = await lifecycle.show(self._store, asked)
        return [] if operation.status in FINAL else await obstacles(self._store, matches_of(operation))

    async def approve(self, approval_id: str, reason: str | None = None) -> Record:
        """Approves, as somebody else than who asked; the operation begins with it, or an action of a
        feature is done."""
        who = self._session.may(Role.OPERATOR)
        record = await approvals.show(self._store, approval_id)
        if record.body["operation"] is None:
            return await self._session.carry_out(record, reason)
        return await approvals.approve(self._store, approval_id, actor=who, reason=reason)

    def is_own(self, record: Record) -> bool:
        """Returns whether the caller asked for it: then somebody else has to approve."""
        return approvals.is_requester(record, self._session.may(Role.VIEWER))

    async def reject(self, approval_id: str, reason: str | None = None) -> Record:
        who = self._session.may(Role.OPERATOR)
        return await approvals.reject(self._store, approval_id, actor=who, reason=reason)
