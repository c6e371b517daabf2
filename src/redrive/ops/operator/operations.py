"""Bulk operations: preview, begin, list, pause, resume, cancel, put back."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated
from uuid import UUID

from redrive.errors import OperationUnknown
from redrive.kernel.commit import Commit
from redrive.kernel.failure_filter import EVERY_FAILURE, FailureFilter
from redrive.kernel.operation import COLLECTION, OF_WAITING, Action, Operation
from redrive.kernel.records import Record
from redrive.ops import approvals, views
from redrive.ops.access import Role
from redrive.ops.belonging import check_cancel
from redrive.ops.operations import lifecycle, plans
from redrive.ops.operations.consequences import Obstacle, obstacles
from redrive.ops.operations.lifecycle import AS_EVER, How, matches_of
from redrive.ops.operations.outcome import RetryOutcome, retried
from redrive.ops.operations.selection import withheld_of
from redrive.ops.operator.declared import Given, Limit, Open, Page, Reason, action, look, view_of
from redrive.ops.operator.session import Service
from redrive.ops.views import ObstacleView, OperationView, Seen, SkippedView
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


@dataclass(slots=True, frozen=True)
class BegunView:
    """An operation that was begun, or waits for a second operator; of a dry run, what it would be about."""

    operation: Seen[OperationView | None]
    approval: Seen[Record | None]
    matched: Seen[int]
    needs_approval: Annotated[str | None, Open("Why a second operator has to agree.")]
    dry_run: Seen[bool]
    withheld: Annotated[
        list[SkippedView],
        Open("Of a dry run, among the first 500: those that their feature does not let be retried."),
    ] = field(default_factory=list)
    warnings: Annotated[list[ObstacleView], Open("What keeps the tasks of a retry from running.")] = field(
        default_factory=list
    )


Id = Annotated[str, Given("The operation, as the list gives it.", metavar="ID")]
States = Annotated[builtins.list[str] | None, Given("Only of these: running, paused, waiting …", metavar="STATUS")]
Before = Annotated[int | None, Given("Go on from the next of a list.", metavar="N", least=0, most=2**62)]
STANDS = "operation {operation} is {done.status}: {done.done} of {done.total} done"


class OperationService(Service):
    """Bulk operations: list, show, watch, pause, resume, cancel, put-back."""

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

    @look("GET /api/operations", items="operations", empty="there are no operations")
    async def list(self, status: States = None, limit: Limit = 50, before: Before = None) -> Page[OperationView]:
        """Bulk operations, newest first."""
        found = await self.records(states=tuple(status or ()), limit=limit, before=before)
        return Page([self._view(one) for one in found], found[-1].seq if len(found) == limit else None)

    async def records(
        self, *, states: tuple[str, ...] = (), limit: int = 50, before: int | None = None
    ) -> builtins.list[Record]:
        """Returns operations as they are kept, newest first."""
        self._session.may(Role.VIEWER)
        return await lifecycle.list_operations(self._store, states=states, limit=limit, before=before)

    @look("GET /api/operations/{operation}")
    async def show(self, operation: Id) -> OperationView:
        """One operation: what it is about, how far it has come, and what became of its tasks."""
        record = await self.record(operation)
        return self._view(record, await retried(self._store, Operation.of(record)))

    async def get(self, operation_id: str) -> Operation:
        return Operation.of(await self.record(operation_id))

    async def record(self, operation_id: str) -> Record:
        """Returns the operation as it is kept, with its times."""
        self._session.may(Role.VIEWER)
        found = await self._store.record(COLLECTION, operation_id)
        if found is None:
            raise OperationUnknown(f"there is no operation {operation_id!r}", hint="redrive operations lists them")
        return found

    @action("POST /api/operations/{operation}/pause", said=STANDS)
    async def pause(self, operation: Id, reason: Reason = None) -> OperationView:
        """Let an operation rest; what it has done stays done."""
        await lifecycle.pause(self._store, operation, actor=self._who, reason=reason)
        return await self.show(operation)

    @action("POST /api/operations/{operation}/resume", said=STANDS)
    async def resume(self, operation: Id, reason: Reason = None) -> OperationView:
        """Go on with a paused operation."""
        await lifecycle.resume(self._store, operation, actor=self._who, reason=reason)
        return await self.show(operation)

    @action("POST /api/operations/{operation}/cancel", said=STANDS)
    async def cancel(self, operation: Id, reason: Reason = None) -> OperationView:
        """End an operation; what it has done stays done."""
        await lifecycle.cancel(self._store, operation, actor=self._who, reason=reason)
        return await self.show(operation)

    @action(
        "POST /api/operations/{operation}/put-back",
        said="operation {done.operation.id} has begun: it puts {done.matched} back",
        page="/operations/{done.operation.id}",
        status=202,
    )
    async def put_back(self, operation: Id, reason: Reason = None) -> BegunView:
        """Retry what a purge gave up and nobody has retried since, up to 1,000 tasks at a time: as an operation of its
        own, under the same rule."""
        record, rule = await self.record(operation), self._session.policy.alone
        begun = await lifecycle.put_back(self._store, record, actor=self._who, rule=rule, reason=reason)
        return await self.begun(BegunOperation(*begun))

    async def begun(self, found: BegunOperation) -> BegunView:
        """Returns an operation that was begun, and what it waits for."""
        self._session.may(Role.VIEWER)
        return BegunView(
            self._view(await self.record(found.operation.id)),
            found.approval,
            found.operation.total,
            None if found.approval is None else found.approval.body["needed"],
            False,
            warnings=[view_of(ObstacleView, one) for one in await self.obstacles_of(found.operation)],
        )

    def _view(self, record: Record, became: RetryOutcome | None = None) -> OperationView:
        return views.operation_view(record, became, self._session.sight)

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
