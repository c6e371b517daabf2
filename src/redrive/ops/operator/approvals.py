"""What waits for a second operator: listed, approved, rejected."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Annotated, TypeVar

from redrive.kernel.operation import FINAL, Action
from redrive.kernel.records import Record
from redrive.ops import approvals, views
from redrive.ops.access import Role
from redrive.ops.operations import lifecycle
from redrive.ops.operations.consequences import Obstacle, WaitingTasks, obstacles, waiting_tasks
from redrive.ops.operations.lifecycle import matches_of
from redrive.ops.operator.declared import Given, Limit, Page, Reason, action, look
from redrive.ops.operator.operations import Before
from redrive.ops.operator.session import Service
from redrive.ops.views import ApprovalView

V = TypeVar("V", bound=ApprovalView)
Id = Annotated[str, Given("The approval, as the list gives it.", metavar="ID")]
States = Annotated[
    builtins.list[str] | None,
    Given("Only of these: pending, approved, rejected, expired, withdrawn.", metavar="STATE"),
]


@dataclass(slots=True, frozen=True)
class ApprovalPage(Page[V]):
    @property
    def note(self) -> str:
        """The warnings of what is listed."""
        warned: builtins.list[ApprovalView] = [one for one in self.items if one.warnings]
        return "\n".join(line for one in warned for line in (f"{one.id}:", *one.warning_lines))


class ApprovalService(Service):
    """What waits for a second operator: list, approve, reject."""

    @look("GET /api/approvals", items="approvals", empty="nothing waits for a second operator")
    async def list(
        self,
        state: States = None,
        pending: Annotated[bool, Given("Only what waits.")] = False,
        limit: Limit = 50,
        before: Before = None,
    ) -> ApprovalPage[ApprovalView]:
        """What was asked for, and what became of it, newest first."""
        states = (*(state or ()), *((approvals.PENDING,) if pending else ()))
        found = await self.records(states=states, limit=limit, before=before)
        return ApprovalPage([await self._view(one) for one in found], found[-1].seq if len(found) == limit else None)

    async def records(
        self, *, states: tuple[str, ...] = (), limit: int = 50, before: int | None = None
    ) -> builtins.list[Record]:
        """Returns approvals as they are kept, newest first."""
        self._session.may(Role.VIEWER)
        return await approvals.list_approvals(self._store, states=states, limit=limit, before=before)

    @look("GET /api/approvals/{approval}")
    async def show(self, approval: Id) -> ApprovalView:
        """One request: what it is about, and what became of it."""
        return await self._view(await approvals.show(self._store, approval))

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

    @action("POST /api/approvals/{approval}/approve", said="{done.outcome}")
    async def approve(self, approval: Id, reason: Reason = None) -> ApprovalView:
        """Agree, as somebody else than who asked; it begins at once."""
        record = await approvals.show(self._store, approval)
        if record.body["operation"] is None:
            return await self._view(await self._session.carry_out(record, reason))
        return await self._view(await approvals.approve(self._store, approval, actor=self._who, reason=reason))

    @action("POST /api/approvals/{approval}/reject", said="{done.outcome}")
    async def reject(self, approval: Id, reason: Reason = None) -> ApprovalView:
        """Refuse; the operation is cancelled."""
        return await self._view(await approvals.reject(self._store, approval, actor=self._who, reason=reason))

    def is_own(self, record: Record) -> bool:
        """Returns whether the caller asked for it: then somebody else has to approve."""
        return approvals.is_requester(record, self._session.may(Role.VIEWER))

    async def _view(self, record: Record) -> ApprovalView:
        return views.approval(record, await self.obstacles(record))
