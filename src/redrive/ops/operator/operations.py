"""Bulk operations: preview, begin, list, pause, resume, cancel."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from redrive.errors import OperationUnknown
from redrive.kernel.commit import Commit
from redrive.kernel.failure_filter import EVERY_FAILURE, FailureFilter
from redrive.kernel.operation import COLLECTION, OF_WAITING, Action, Operation
from redrive.kernel.records import Record
from redrive.ops import approvals
from redrive.ops.access import Role
from redrive.ops.belonging import check_cancel
from redrive.ops.operations import lifecycle, plans
from redrive.ops.operations.consequences import Obstacle, obstacles
from redrive.ops.operations.lifecycle import AS_EVER, How, matches_of
from redrive.ops.operations.outcome import RetryOutcome, retried
from redrive.ops.operations.selection import withheld_of
from redrive.ops.operator.session import Service
from redrive.ops.workers import drivers

FIRST_TASKS_SHOWN = 5
FIRST_TASKS_ASKED = 500  # whether their feature withholds them


@dataclass(slots=True, frozen=True)
class OperationPreview:
    """The preview of an operation: bound by ``plan``, beginning with ``first``, and why a second operator would have to
    agree (None: nobody has to)."""

    bound: Operation
    plan: str | None
    first: list[UUID]
    approval: str | None
    withheld: Mapping[UUID, str] = field(default_factory=dict)  # of the first tasks: what it leaves alone, and why
    obstacles: Sequence[Obstacle] = ()  # that keep them from running

    @property
    def number(self) -> int:
        return self.bound.total

    @property
    def cancelled(self) -> int:
        """How many of them are cancelled now."""
        return 0 if self.bound.retry is None else self.bound.retry.cancelled


@dataclass(slots=True, frozen=True)
class BegunOperation:
    operation: Operation
    approval: Record | None


class OperationService(Service):
    async def preview(
        self,
        action: Action,
        which: FailureFilter = EVERY_FAILURE,
        plan: str | None = None,
        *,
        bind: bool = False,
        counted: bool = True,
    ) -> OperationPreview:
        """Returns which tasks, how many, and whether a second operator has to agree. ``bind`` makes a plan of it: what
        was looked at is then what is done. Without ``counted`` the number is that of the plan, at least."""
        who = self._session.may(self._role(action))
        meant = await self._meant(action, which)
        if bind and plan is None and action not in OF_WAITING:
            plan = (await plans.make(self._store, meant, who, cancelled=action is Action.RETRY)).token
            meant = EVERY_FAILURE
        bound = await lifecycle.preview(self._store, action, meant, plan, counted=counted)
        guarded = action is Action.RETRY and bool(self._store.features.guards)
        first = list[UUID]()
        if plan is not None or guarded:
            most = FIRST_TASKS_ASKED if guarded else FIRST_TASKS_SHOWN
            first = [one.id for one in await matches_of(bound).first(self._store, most)]
        return OperationPreview(
            bound,
            plan,
            first[:FIRST_TASKS_SHOWN] if plan is not None else [],
            await self._session.needs(approvals.planned_action(bound)),
            await withheld_of(self._store, first) if guarded else {},
            await obstacles(self._store, matches_of(bound)) if action is Action.RETRY else (),
        )

    async def obstacles(self, which: FailureFilter = EVERY_FAILURE, plan: str | None = None) -> builtins.list[Obstacle]:
        """Returns what would keep tasks from running if they were retried now, by a filter or a plan."""
        self._session.may(Role.VIEWER)
        meant = await self._session.known(which)
        bound = await lifecycle.preview(self._store, Action.RETRY, meant, plan, counted=False)
        return await obstacles(self._store, matches_of(bound))

    async def obstacles_of(self, operation: Operation) -> builtins.list[Obstacle]:
        """Returns what keeps its tasks from running; nothing where it does not retry."""
        self._session.may(Role.VIEWER)
        if operation.action is not Action.RETRY:
            return []
        return await obstacles(self._store, matches_of(operation))

    async def begin(
        self,
        action: Action,
        which: FailureFilter = EVERY_FAILURE,
        *,
        reason: str | None = None,
        plan: str | None = None,
        how: How = AS_EVER,
        seen: OperationPreview | None = None,
        beside: Callable[[str], Commit] | None = None,
    ) -> BegunOperation:
        """Begins an operation, or asks for it: dangerous and large ones wait for a second operator. ``seen``: what
        ``preview`` returned, to do exactly that. Whoever retries or gives up everything says what was fixed and whether
        the handlers may run twice (``how``). ``beside``: see ``lifecycle.begin``."""
        who = self._session.may(self._role(action))
        meant = await self._meant(action, which)
        token = plan if seen is None else seen.plan
        if action in (Action.RETRY, Action.FORGET) and await self._is_everything(meant, token, seen):
            how.check_answers()
        begun = await lifecycle.begin(
            self._store,
            action,
            meant,
            actor=who,
            reason=reason,
            plan=token,
            how=how,
            rule=self._session.policy.alone,
            bound=None if seen is None else seen.bound,
            beside=beside,
        )
        return BegunOperation(*begun)

    async def list(
        self, *, states: tuple[str, ...] = (), limit: int = 50, before: int | None = None
    ) -> builtins.list[Record]:
        """Returns operations, newest first."""
        self._session.may(Role.VIEWER)
        return await lifecycle.list_operations(self._store, states=states, limit=limit, before=before)

    async def show(self, operation_id: str) -> Operation:
        return Operation.of(await self.record(operation_id))

    async def record(self, operation_id: str) -> Record:
        """Returns the operation as it is kept, with its times."""
        self._session.may(Role.VIEWER)
        found = await self._store.record(COLLECTION, operation_id)
        if found is None:
            raise OperationUnknown(f"there is no operation {operation_id!r}", hint="redrive operations lists them")
        return found

    async def pause(self, operation_id: str, reason: str | None = None) -> Operation:
        who = self._session.may(Role.OPERATOR)
        return await lifecycle.pause(self._store, operation_id, actor=who, reason=reason)

    async def resume(self, operation_id: str, reason: str | None = None) -> Operation:
        who = self._session.may(Role.OPERATOR)
        return await lifecycle.resume(self._store, operation_id, actor=who, reason=reason)

    async def cancel(self, operation_id: str, reason: str | None = None) -> Operation:
        """Stops an operation; what it has done so far stays done."""
        who = self._session.may(Role.OPERATOR)
        return await lifecycle.cancel(self._store, operation_id, actor=who, reason=reason)

    async def put_back(self, operation_id: str, reason: str | None = None) -> BegunOperation:
        """Retries what a purge gave up and is still cancelled, as an operation of its own, under the same rule."""
        who = self._session.may(Role.OPERATOR)
        record, rule = await self.record(operation_id), self._session.policy.alone
        begun = await lifecycle.put_back(self._store, record, actor=who, rule=rule, reason=reason)
        return BegunOperation(*begun)

    async def retried(self, operation: Operation) -> RetryOutcome | None:
        """Returns what became of the tasks that it retried; None where it does something else."""
        self._session.may(Role.VIEWER)
        return await retried(self._store, operation)

    async def has_driver(self) -> bool:
        """Returns whether there is a live worker that carries operations out."""
        self._session.may(Role.VIEWER)
        return bool(drivers(await self._store.overview()))

    async def _meant(self, action: Action, which: FailureFilter) -> FailureFilter:
        if action is Action.CANCEL and which.join is not None:
            await check_cancel(self._store, self._session.features, which.join)
        return await self._session.known(which)

    async def _is_everything(self, which: FailureFilter, plan: str | None, seen: OperationPreview | None) -> bool:
        if seen is not None:
            return seen.bound.which.everything
        return which.everything if plan is None else (await plans.load(self._store, plan)).which.everything

    def _role(self, action: Action) -> Role:
        return Role.ADMIN if action is Action.PURGE else Role.OPERATOR
