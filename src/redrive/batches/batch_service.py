"""Batches of both sorts as people with roles see them: of tasks, and of jobs at a provider. Which sort an id is of is
found out here, and nowhere else."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from redrive.batches.batch import BATCH, FEATURE, STRETCHES, Batch, BatchUnknown
from redrive.batches.items import ItemPage, item_of_remote, item_of_task, task_states
from redrive.batches.remote.create_batch import Payloads
from redrive.batches.remote.model import RemoteBatch, ToRetry
from redrive.batches.remote.reconcile import Reconciling
from redrive.batches.remote.service import CANCEL, RETRY_FAILED, ApprovedBatches, RemoteBatchService
from redrive.batches.remote.wait_reasons import MONEY, tasks_wait_for
from redrive.batches.task_batch_service import Failures, TaskBatchService, Trend, causes_in, check_listed
from redrive.batches.task_input import Given, Many
from redrive.feature import InvalidInput, Role, Service
from redrive.kernel.operation import Operation
from redrive.kernel.records import Record
from redrive.kernel.task import check_int
from redrive.ops import views
from redrive.ops.inspect import parse_id
from redrive.ops.operations.lifecycle import AS_EVER, How
from redrive.ops.why import Reason

_OF_JOBS = ("provider", "account", "price", "webhook_url", "max_in_flight")
_OF_TASKS = ("on_complete", "on_success")


@dataclass(slots=True, frozen=True, kw_only=True)
class BatchRequest:
    """What was said of a batch, besides its items; None is what was not. ``called``: what a face calls these."""

    name: str | None = None
    key: str | None = None
    meta: Any = None
    scope: str | None = None
    on_complete: Given | None = None
    on_success: Given | None = None
    provider: str | None = None
    account: str | None = None
    price: int | None = None
    webhook_url: str | None = None
    max_in_flight: int | None = None
    called: Callable[[str], str] = str

    def check(self, tasks: bool, items: bool) -> None:
        """Refuses what is of both sorts, or of none, by its name."""
        if tasks == items:
            both = "tasks and items do not go together" if tasks else "there are neither tasks nor items"
            raise InvalidInput(f"{both}: {_SORTS}", hint=self._hint)
        if items and self.provider is None:
            raise InvalidInput(f"{self.called('provider')} is missing: {_SORTS}", hint=self._hint)
        wrong = [self.called(name) for name in (_OF_JOBS if tasks else _OF_TASKS) if getattr(self, name) is not None]
        if wrong:
            sort = "jobs at a provider" if tasks else "tasks"
            raise InvalidInput(f"{', '.join(wrong)}: only for batches of {sort}", hint=self._hint)

    @property
    def _hint(self) -> str:
        return f"with {self.called('provider')} the items are jobs there, without it they are tasks"

    def of_tasks(self) -> dict[str, Any]:
        """Returns the arguments for a batch of tasks."""
        return {name: value for name, value in self._given().items() if name not in _OF_JOBS}

    def of_jobs(self) -> dict[str, Any]:
        """Returns the arguments for a batch of jobs."""
        given = {name: value for name, value in self._given().items() if name not in _OF_TASKS}
        return {**given, "price": self.price or 0}

    def _given(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "called"}


_SORTS = "a batch is of tasks, or of items that are jobs at a provider"


@dataclass(slots=True, frozen=True)
class BatchPage:
    batches: builtins.list[Batch]
    next_before: UUID | None


@dataclass(slots=True, frozen=True)
class Preview:
    """What acting on a batch would be about: so many items, and why a second operator would have to agree (None: nobody
    has to). ``charge``: what is frozen anew for them."""

    matched: int
    approval: str | None = None
    charge: int | None = None
    unit: str = ""  # what the charge is counted in
    skipped: int = 0  # failed items that a retry leaves out
    notes: Sequence[str] = ()  # which these are and why, and what else there is to know before


@dataclass(slots=True, frozen=True)
class Acted:
    """What was begun: of a batch of tasks an operation; a remote one has changed. Either may wait for an approval."""

    batch: Batch
    matched: int
    operation: Operation | None = None
    approval: Record | None = None
    charge: int | None = None
    skipped: int = 0
    notes: Sequence[str] = ()


class BatchService(Service):
    async def list(
        self,
        *,
        state: str | None = None,
        remote: bool | None = None,
        provider: str | None = None,
        account: str | None = None,
        limit: int = 50,
        before: UUID | str | None = None,
    ) -> BatchPage:
        """Returns batches of both sorts, the latest first; of one sort by ``remote``, of one provider, of one account.
        ``before`` continues behind the last id of a page."""
        check_int(limit, "limit", 1, 500)
        check_listed(state, limit)
        paid = provider is not None or account is not None
        if paid and remote is False:
            raise InvalidInput("batches of tasks have no provider and no account", hint="leave one of them out")
        found = list[Batch]()
        if remote is not True and not paid:
            found += await self._tasks.list(state=state, limit=limit + 1, before=before)
        if remote is not False:
            found += await self._remote.list(
                state=state, provider=provider, account=account, limit=limit + 1, before=before
            )
        found.sort(key=lambda one: one.id, reverse=True)
        return BatchPage(found[:limit], found[limit - 1].id if len(found) > limit else None)

    async def unended(self, most: int) -> int:
        """Returns how many have not ended, up to so many of each sort."""
        return len(await self._tasks.unended(most)) + await self._remote.unsettled(most)

    async def now(self) -> datetime:
        """Returns the time by the store's clock, for whoever says how long something is ago."""
        return await self._store.now()

    async def show(self, batch: UUID | str) -> Batch:
        """Returns a batch with the counts of its items."""
        return await (self._remote.common(batch) if await self.is_remote(batch) else self._tasks.show(batch))

    async def waits_for(self, batch: UUID | str) -> builtins.list[Reason]:
        """Returns what its items wait for: a pause, an open circuit, no worker; at a provider each of them."""
        if await self.is_remote(batch):
            return await self._remote.waits_for(batch)
        found = await self._tasks.show(batch)
        return await tasks_wait_for(self._store, found.id) if found.pending else []

    async def unpaid(self, batch: Batch) -> builtins.list[Reason]:
        """Returns that the account of a batch cannot pay for it, if so: to be said when it was created."""
        waits = [] if batch.remote is None else await self._remote.waits_for(batch.id)
        return [one for one in waits if one.code == MONEY]

    async def is_remote(self, batch: UUID | str) -> bool:
        """Returns whether the items of a batch are jobs at a provider; refused where there is no such batch."""
        self._session.may(Role.VIEWER)
        wanted = parse_id(str(batch), BATCH)
        rows = await self._store.sql.feature_rows(FEATURE, "sort_of", str(wanted))
        if not rows:
            raise BatchUnknown(f"there is no batch {wanted}", hint="redrive batch list names the latest")
        return bool(rows[0]["remote"])

    async def items(
        self,
        batch: UUID | str,
        *,
        states: Sequence[str] = (),
        kind: str | None = None,
        failure_type: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> ItemPage:
        """Returns items: those of tasks the latest first, those at a provider in the order in which they were given.
        ``after`` continues behind what a page ended with."""
        check_int(limit, "limit", 1, 1000)
        if await self.is_remote(batch):
            if kind is not None:
                raise InvalidInput("items at a provider are of one kind", hint="leave out the kind")
            return await self._remote_items(batch, states, failure_type, limit, after)
        last = None if after is None else parse_id(after)
        page = await self._tasks.items(
            batch, states=task_states(states), kind=kind, failure_type=failure_type, limit=limit, before=last
        )
        seen = [item_of_task(views.task(task, self._session.sight)) for task in page.tasks]
        return ItemPage(seen, None if page.next_before is None else str(page.next_before))

    async def _remote_items(
        self, batch: UUID | str, states: Sequence[str], failure_type: str | None, limit: int, after: str | None
    ) -> ItemPage:
        if after is not None and not after.isdecimal():
            raise InvalidInput(f"after is the place of an item, not {after!r}", hint="what the last page ended with")
        found = await self._remote.items(
            batch, states=states, failure_type=failure_type, after=int(after or 0), limit=limit + 1
        )
        more = str(found[limit - 1].n) if len(found) > limit else None
        return ItemPage([item_of_remote(one) for one in found[:limit]], more)

    async def failures(self, batch: UUID | str) -> Failures:
        """Returns what the items are failed by."""
        if not await self.is_remote(batch):
            return await self._tasks.failures(batch)
        found = await self._remote.progress(batch)
        join = found.batch.join_id if found.by_type else None
        causes = [] if join is None else await causes_in(self._store, join)
        return Failures(found.by_type, found.by_code, causes, await self._remote_trend(found.batch))

    async def _remote_trend(self, batch: RemoteBatch) -> Trend | None:
        history = await self._remote.history(batch)
        if history is None or batch.dispatched_at is None or not history.failed:
            return None
        return Trend(batch.dispatched_at, history.seconds / STRETCHES, history.failed)

    async def create(self, wanted: BatchRequest, *, tasks: Many | None = None, items: Payloads | None = None) -> Batch:
        """Makes a batch of tasks, or of items that are jobs at a provider."""
        wanted.check(tasks is not None, items is not None)
        if tasks is not None:
            return await self._tasks.create(tasks, **wanted.of_tasks())
        made = await self._remote.create(() if items is None else items, **wanted.of_jobs())
        return await self._remote.common(made.id)

    def check(self, wanted: BatchRequest, tasks: Iterable[tuple[str, Given]]) -> None:
        """Refuses a task that could not be enqueued, by what it is called, before anything is written."""
        wanted.check(tasks=True, items=False)
        self._tasks.check(tasks)

    async def preview_cancel(self, batch: UUID | str) -> Preview:
        """Returns how many items a cancel is about, and whether a second operator has to agree."""
        if not await self.is_remote(batch):
            seen = await self._tasks.preview_cancel(batch)
            return Preview(seen.number, seen.approval)
        self._session.may(Role.OPERATOR)
        number = (await self._remote.common(batch)).pending
        return Preview(number, await self._approved.needs(CANCEL, number))

    async def cancel(self, batch: UUID | str, reason: str | None = None) -> Acted:
        """Cancels what has not ended. At a provider: what was not started is released, the rest polled to its end."""
        if not await self.is_remote(batch):
            begun = await self._tasks.cancel(batch, reason)
            return Acted(await self.show(batch), begun.operation.total, begun.operation, begun.approval)
        before = await self._remote.common(batch)
        done = await self._approved.act(CANCEL, before, reason)
        return Acted(await self._remote.common(batch), before.pending, approval=done.approval)

    async def preview_retry(self, batch: UUID | str) -> Preview:
        """Returns how many failed items a retry is about, and what it costs or needs."""
        if not await self.is_remote(batch):
            seen = await self._tasks.preview_retry(batch)
            return Preview(seen.number, seen.approval)
        self._session.may(Role.OPERATOR)
        found = await self._remote.common(batch)
        found.check_kept()
        retry = await self._remote.to_retry(found.id)
        approval = await self._approved.needs(RETRY_FAILED, retry.matched)
        unit = "" if found.remote is None else found.remote.unit
        charge = _charge(found, retry.matched)
        return Preview(retry.matched, approval, charge, unit, retry.skipped, retry.notes(found.id))

    async def retry_failed(self, batch: UUID | str, reason: str | None = None, *, how: How = AS_EVER) -> Acted:
        """Retries the items that are failed now; those at a provider as a new charge, when the batch is settled."""
        if not await self.is_remote(batch):
            begun = await self._tasks.retry_failed(batch, reason, how=how)
            return Acted(await self.show(batch), begun.operation.total, begun.operation, begun.approval)
        if how.paced:
            raise InvalidInput(
                "a rate and canaries are for batches of tasks",
                hint="how quickly jobs are started is said by BATCH_WORKER_MAX_START_TASKS_PER_BATCH",
            )
        before = await self._remote.common(batch)
        seen = await self._remote.to_retry(before.id)
        done = await self._approved.act(RETRY_FAILED, before, reason)
        found = await self._remote.common(batch)
        number = seen.matched if done.batch is None else done.batch.in_round
        charge, skipped = _charge(found, number), seen.failed - number
        return Acted(found, number, approval=done.approval, charge=charge, skipped=skipped, notes=seen.notes(found.id))

    async def to_retry(self, batch: Batch) -> ToRetry:
        """Returns what a retry of the failed items of a batch is about."""
        return ToRetry(batch.failed) if batch.remote is None else await self._remote.to_retry(batch.id)

    async def preview_charge(self, batch: UUID | str, items: Sequence[int] = ()) -> Preview:
        """Returns how many items a charge is about, what it comes to, and whether a second operator has to agree."""
        self._session.may(Role.OPERATOR)
        found = await self._paid(batch)
        number = len(await self._remote.ran(found.id, items))
        amount = _charge(found, number) or 0
        return Preview(
            number, await self._approved.needs_for(amount), amount, found.remote.unit if found.remote else ""
        )

    async def charge(self, batch: UUID | str, items: Sequence[int] = (), reason: str | None = None) -> Acted:
        """Charges for items of a settled batch that ended here, and whose jobs ran all the same: of these, or of all.
        They are completed from then on; each is charged once, however often this is asked for."""
        self._session.may(Role.OPERATOR)
        before = await self._paid(batch)
        number = len(await self._remote.ran(before.id, items))
        done = await self._approved.charge(before, items, reason)
        found = await self._remote.common(batch)
        number = done.charged if done.approval is None else number
        return Acted(found, number, approval=done.approval, charge=_charge(found, number))

    async def _paid(self, batch: UUID | str) -> Batch:
        if not await self.is_remote(batch):
            raise InvalidInput(f"batch {batch} is of tasks, which cost nothing", hint="only jobs at a provider do")
        return await self._remote.common(batch)

    async def reconcile(self, batch: UUID | str | None = None, reason: str | None = None) -> Reconciling:
        """Has a worker ask providers about items that ended without their word, of one batch or of all."""
        if batch is not None:
            await self._check_remote(batch)
        return await self._remote.reconcile(batch, reason)

    async def accept_unknown(self, batch: UUID | str, reason: str | None) -> int:
        """Accepts that nobody will know how items of a batch ended; returns how many. Nobody is warned of them then."""
        await self._check_remote(batch)
        return await self._remote.accept_unknown(batch, reason or "")

    async def _check_remote(self, batch: UUID | str) -> None:
        if not await self.is_remote(batch):
            raise InvalidInput(
                f"batch {batch} is of tasks, which no provider knows", hint="only jobs at a provider are reconciled"
            )

    async def reconciled(self, task: UUID) -> dict[str, Any] | None:
        """Returns what came of it; None while it is not done."""
        return await self._remote.reconciled(task)

    @property
    def _tasks(self) -> TaskBatchService:
        return TaskBatchService(self._session)

    @property
    def _remote(self) -> RemoteBatchService:
        return RemoteBatchService(self._session)

    @property
    def _approved(self) -> ApprovedBatches:
        return ApprovedBatches(self._session)


def _charge(batch: Batch, items: int) -> int | None:
    return None if batch.remote is None else batch.remote.price_of(items)
