"""Batches of tasks as people with roles see them: list, show, items, failures, cancel, retry what failed, create."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from redrive.batches.app_batch import NewBatch, find_batch
from redrive.batches.batch import FEATURE, STRETCHES, Batch, BatchState, of_row, without_words
from redrive.batches.batch_builder import BatchBuilder, Way, marking, plan
from redrive.batches.task_input import Given, Many, as_new
from redrive.errors import InvalidTransition
from redrive.feature import Commit, Conflict, InvalidInput, Role, Rows, Service, Store, new_id
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Action
from redrive.kernel.reads import Query
from redrive.kernel.task import State, check_int
from redrive.ops import inspect
from redrive.ops.causes import Cause, list_causes
from redrive.ops.inspect import parse_id
from redrive.ops.operations.lifecycle import AS_EVER, How
from redrive.ops.operator.operations import BegunOperation, OperationPreview, OperationService
from redrive.ops.operator.tasks import TaskService

MOST_CAUSES = 20
MOST_LISTED = 501  # a page of 500, and one more that says whether it goes on


@dataclass(slots=True, frozen=True)
class Trend:
    """When the items failed that are failed now: how many by each type in each of thirty equal stretches of time."""

    since: datetime
    step_seconds: float
    by_type: Mapping[str, builtins.list[int]]


@dataclass(slots=True, frozen=True)
class Failures:
    """The items of a batch that are failed now, by type and by cause; of a great many, the latest ten thousand."""

    by_type: dict[str, int]
    by_code: dict[str, int]
    causes: builtins.list[Cause]
    trend: Trend | None = None


class TaskBatchService(Service):
    async def list(
        self, *, state: str | None = None, limit: int = 50, before: UUID | str | None = None
    ) -> builtins.list[Batch]:
        """Returns those of tasks, the latest first; ``before`` continues behind the last id of a page."""
        self._session.may(Role.VIEWER)
        check_listed(state, limit)
        last = None if before is None else str(parse_id(str(before)))
        rows = await self._store.sql.feature_rows(FEATURE, "listed", last, state, limit)
        return [self._seen(of_row(row)) for row in rows]

    async def unended(self, limit: int = 100) -> builtins.list[Batch]:
        """Returns batches that have not ended, the oldest first."""
        self._session.may(Role.VIEWER)
        return [self._seen(of_row(row)) for row in await self._store.sql.feature_rows(FEATURE, "unended", limit)]

    async def show(self, batch: UUID | str) -> Batch:
        self._session.may(Role.VIEWER)
        return self._seen(await find_batch(self._store, batch))

    def _seen(self, batch: Batch) -> Batch:
        """Returns what the caller may see of a batch: its name, key and meta are others' words."""
        return batch if self._session.caller.role >= Role.OPERATOR else without_words(batch)

    async def items(
        self,
        batch: UUID | str,
        *,
        states: Sequence[State] = (),
        kind: str | None = None,
        failure_type: str | None = None,
        limit: int = 50,
        before: UUID | None = None,
    ) -> inspect.Page:
        """Returns items, the latest first, live and finished."""
        found = await self.show(batch)
        query = Query(tuple(states), kind, limit=limit, before=before, failure_type=failure_type, join=str(found.id))
        return await TaskService(self._session).list(query)

    async def failures(self, batch: UUID | str) -> Failures:
        """Returns what the items are failed by."""
        found = await self.show(batch)
        rows = await self._store.sql.feature_rows(FEATURE, "failures", str(found.id))
        types, codes = dict[str, int](), dict[str, int]()
        for row in rows:
            types[row["failure_type"]] = types.get(row["failure_type"], 0) + row["n"]
            codes[row["error_code"]] = codes.get(row["error_code"], 0) + row["n"]
        if not rows:
            return Failures({}, {}, [])
        causes, trend = await causes_in(self._store, found.id), await self._trend(found)
        return Failures(_largest(types), _largest(codes), causes, trend)

    async def _trend(self, batch: Batch) -> Trend:
        """Returns how the items failed over the time of a batch; what was retried after its end counts to the last."""
        since = batch.created_at.timestamp()
        until = (batch.ended_at or await self._store.now()).timestamp()
        step = max(until - since, 1.0) / STRETCHES
        found = dict[str, builtins.list[int]]()
        for row in await self._store.sql.feature_rows(FEATURE, "failed_over", str(batch.id), since, step):
            counts = found.setdefault(row["failure_type"], [0] * STRETCHES)
            counts[min(max(int(row["stretch"]), 0), STRETCHES - 1)] += row["n"]
        return Trend(batch.created_at, step, found)

    async def cancel(self, batch: UUID | str, reason: str | None = None) -> BegunOperation:
        """Cancels what has not ended, as one operation: what waits now, what runs is asked. Nothing more can be added.
        Where a second operator has to agree, this happens then."""
        who = self._session.may(Role.OPERATOR)
        found = await self.show(batch)
        if found.state is not BatchState.PROCESSING:
            raise InvalidTransition(
                f"batch {found.id} is {found.state}", hint="only one that has not ended is cancelled"
            )
        if found.asked:
            raise Conflict(
                f"batch {found.id} waits for a second operator to cancel it",
                hint=f"redrive approvals; the operation is {found.cancel_operation}",
            )
        begun = await OperationService(self._session).begin(
            Action.CANCEL,
            FailureFilter(join=str(found.id)),
            reason=reason,
            beside=marking(found.id, who, reason, scope=found.scope),
        )
        if begun.approval is not None:
            row = {"id": str(found.id), "operation": begun.operation.id, "by": who, "reason": reason}
            await self._store.apply(Commit(rows=[Rows(FEATURE, "asked", (row,))]))
        return begun

    async def create(
        self,
        tasks: Many,
        *,
        on_success: Given | None = None,
        on_complete: Given | None = None,
        key: str | None = None,
        meta: Any = None,
        name: str | None = None,
        scope: str | None = None,
    ) -> Batch:
        """Makes a batch of these tasks and seals it; what goes wrong on the way cancels it."""
        who, batch = self._session.may(Role.OPERATOR), new_id()
        what = plan(
            self._session.registry,
            on_success=on_success,
            on_complete=on_complete,
            key=key,
            meta=meta,
            name=name,
            scope=scope,
            parent=None,
            batch=batch,
            by=who,
        )
        made = NewBatch(BatchBuilder(Way(self._session.registry, self._store.apply, self._own), batch, what), tasks)
        return await made

    def check(self, tasks: Iterable[tuple[str, Given]]) -> None:
        """Refuses a task that could not be enqueued, by what it is called; nothing is written."""
        self._session.may(Role.OPERATOR)
        for what, given in tasks:
            as_new(self._session.registry, given, what)

    async def _own(self) -> Store:
        return self._store

    async def preview_retry(self, batch: UUID | str, *, bind: bool = False) -> OperationPreview:
        """Returns how many failed items a retry is about, and whether a second operator has to agree."""
        found = await self.show(batch)
        return await OperationService(self._session).preview(Action.RETRY, FailureFilter(join=str(found.id)), bind=bind)

    async def preview_cancel(self, batch: UUID | str) -> OperationPreview:
        """Returns how many items a cancel is about, and whether a second operator has to agree."""
        found = await self.show(batch)
        return await OperationService(self._session).preview(Action.CANCEL, FailureFilter(join=str(found.id)))

    async def retry_failed(
        self,
        batch: UUID | str,
        reason: str | None = None,
        *,
        how: How = AS_EVER,
        seen: OperationPreview | None = None,
    ) -> BegunOperation:
        """Retries the items that are failed now, as one operation. They are counted again when they end; ``on_success``
        follows if then all have completed."""
        self._session.may(Role.OPERATOR)
        found = await self.show(batch)
        if not found.failed:
            raise InvalidTransition(
                f"no item of batch {found.id} is failed", hint="cancelled ones are retried by their ids"
            )
        which = FailureFilter(join=str(found.id))
        return await OperationService(self._session).begin(Action.RETRY, which, reason=reason, how=how, seen=seen)


async def causes_in(store: Store, join: UUID) -> list[Cause]:
    """Returns the causes of the members of a join that are failed now, the largest first."""
    return (await list_causes(store, FailureFilter(join=str(join)), limit=MOST_CAUSES)).causes


def check_listed(state: str | None, limit: int) -> None:
    """Refuses a state that no batch has, and pages that are too long."""
    check_int(limit, "limit", 1, MOST_LISTED)
    if state is not None and state not in list(BatchState):
        raise InvalidInput(f"{state!r} is no state of a batch", hint=f"one of: {', '.join(BatchState)}")


def _largest(counts: dict[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))
