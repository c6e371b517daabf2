"""Batches of both sorts as people with roles see them and act on them: of tasks, and of jobs at a provider. Which sort
an id is of is found out here, and nowhere else."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

from redrive.batches.batch import (
    BATCH,
    STRETCHES,
    Acted,
    Batch,
    FailedCause,
    Failures,
    Reconciling,
    ShownBatch,
    Trend,
    items_are,
    new_charge,
    of_row,
    shown_batch,
    without_words,
)
from redrive.batches.batch_builder import NewBatch, Way, marking, plan
from redrive.batches.batch_input import BatchRequest, Given, Many, as_new
from redrive.batches.items import ItemPage, item_of_remote, item_of_task, task_states
from redrive.batches.names import FEATURE, BatchState
from redrive.batches.remote.actions import CANCEL, CHARGE, RETRY_FAILED, Done, RemoteBatchActions
from redrive.batches.remote.create_batch import Payloads
from redrive.batches.remote.model import NOTHING_TO_RETRY, RemoteBatch, ToRetry, find_batch, find_either, remote_ones
from redrive.batches.remote.wait_reasons import MONEY, tasks_wait_for
from redrive.errors import InvalidTransition
from redrive.feature import Commit, Conflict, InvalidInput, Role, Rows, Service, Store, action, look, new_id
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Action
from redrive.kernel.reads import Query
from redrive.kernel.task import check_int
from redrive.ledger.settings import LedgerSettings
from redrive.ops import inspect, views
from redrive.ops.causes import list_causes
from redrive.ops.inspect import parse_id
from redrive.ops.operations.lifecycle import AS_EVER, How
from redrive.ops.operator import declared
from redrive.ops.operator.declared import Limit, Page, Reason
from redrive.ops.operator.operations import BegunOperation, OperationService
from redrive.ops.operator.tasks import TaskService
from redrive.ops.why import Reason as WaitReason
from redrive.webhooks.address_guard import origin

MOST_CAUSES = 20
BatchId = Annotated[UUID | str, declared.Given("The id of a batch.", metavar="BATCH")]
DryRun = Annotated[bool, declared.Given("Say what it would be about, and do nothing.")]
Accept = Annotated[bool, declared.Given("Ask nobody: accept that it stays unknown. Needs a reason.")]
ItemPlaces = Annotated[Sequence[int], declared.Given("Their places, from 1; none: all that ran.")]
SAID = "batch {done.batch.label}: {done.told}"


class BatchService(Service):
    """Work that belongs together: list, show, items, cancel, retry what failed, charge, reconcile."""

    @look("GET /api/batches", items="batches", empty="there are no batches that fit")
    async def list(
        self,
        state: Annotated[str | None, declared.Given(f"{', '.join(BatchState)}.", metavar="NAME")] = None,
        remote: Annotated[
            bool | None, declared.Given("Only jobs at a provider, or only tasks.", option="--remote/--tasks")
        ] = None,
        provider: Annotated[str | None, declared.Given("At this provider.", metavar="NAME")] = None,
        account: Annotated[str | None, declared.Given("Paid for by this one.", metavar="NAME")] = None,
        limit: Limit = 50,
        before: Annotated[str | None, declared.Given("Go on behind this one.", metavar="ID")] = None,
    ) -> Page[Batch]:
        """Batches of both sorts, the latest first: how far they are, and their money."""
        if state is not None and state not in builtins.list(BatchState):
            raise InvalidInput(f"{state!r} is no state of a batch", hint=f"one of: {', '.join(BatchState)}")
        paid = provider is not None or account is not None
        if paid and remote is False:
            raise InvalidInput("batches of tasks have no provider and no account", hint="leave one of them out")
        last = None if before is None else str(parse_id(str(before)))
        found = builtins.list[Batch]()
        if remote is not True and not paid:
            rows = await self._store.sql.feature_rows(FEATURE, "listed", last, state, limit + 1)
            found += [self._seen(of_row(row)) for row in rows]
        if remote is not False:
            query = (last, state, provider, account, limit + 1)
            rows = await self._store.sql.feature_rows(FEATURE, "remote_listed", *query)
            found += [self._seen(one) for one in await remote_ones(self._store, [row["id"] for row in rows])]
        found.sort(key=lambda one: one.id, reverse=True)
        return Page(found[:limit], str(found[limit - 1].id) if len(found) > limit else None)

    @look("GET /api/batches/{batch}")
    async def show(self, batch: BatchId) -> ShownBatch:
        """How far a batch is, and what it waits for."""
        found = await self.find(batch)
        return shown_batch(found, await self.waits_for(found))

    @look("GET /api/batches/{batch}/failures")
    async def failures(self, batch: BatchId) -> Failures:
        """What its items are failed by: types, codes, causes."""
        found = await self.find(batch)
        if found.remote is not None:
            return await self._remote_failures(found.id)
        types, codes = Counter[str](), Counter[str]()
        for row in await self._store.sql.feature_rows(FEATURE, "failures", str(found.id)):
            types[row["failure_type"]] += row["n"]
            codes[row["error_code"]] += row["n"]
        if not types:
            return Failures({}, {}, [])
        return Failures(_largest(types), _largest(codes), await self._causes(found.id), await self._trend(found))

    @action("POST /api/batches/{batch}/cancel", said=SAID, page="{done.page}", status=202)
    async def cancel(self, batch: BatchId, reason: Reason = None, dry_run: DryRun = False) -> Acted:
        """Cancel what has not ended. Of tasks: as one operation. At a provider: what was not started is released, what
        runs is polled to its end."""
        found = await self.find(batch)
        if found.remote is None:
            return await self._act_on_tasks(Action.CANCEL, found, reason, dry_run)
        return await self._act(CANCEL, found, found.pending, reason, dry_run)

    @action("POST /api/batches/{batch}/retry-failed", said=SAID, page="{done.page}", status=202)
    async def retry_failed(
        self, batch: BatchId, reason: Reason = None, how: How = AS_EVER, dry_run: DryRun = False
    ) -> Acted:
        """Retry the items that are failed now. Of tasks: as one operation. At a provider: as a new charge, when the
        batch is settled, without those whose jobs ran all the same."""
        found = await self.find(batch)
        if found.remote is None:
            return await self._act_on_tasks(Action.RETRY, found, reason, dry_run, how)
        if how.paced:
            raise InvalidInput(
                "a rate and canaries are for batches of tasks",
                hint="how quickly jobs are started is said by BATCH_WORKER_MAX_START_TASKS_PER_BATCH",
            )
        if dry_run:
            found.check_kept()
        seen = await self.to_retry(found)
        return await self._act(RETRY_FAILED, found, seen.matched, reason, dry_run, seen=seen)

    @action("POST /api/batches/{batch}/charge", said=SAID, page="{done.page}", status=202)
    async def charge(
        self, batch: BatchId, items: ItemPlaces = (), reason: Reason = None, dry_run: DryRun = False
    ) -> Acted:
        """Charge for items of a settled batch that ended here, and whose jobs ran all the same, as the provider said
        when it was asked: these, or all. They are completed from then on, and the customer is told. Each is charged
        once."""
        found = await self._remote_one(batch, "which cost nothing", "only jobs at a provider do")
        number = len(await self._remote.ran(found.id, items))
        return await self._act(CHARGE, found, number, reason, dry_run, items)

    @action("POST /api/batches/{batch}/reconcile", said="{done.told}", page="/batches/{batch}", status=202)
    async def reconcile(self, batch: BatchId, reason: Reason = None, accept: Accept = False) -> Reconciling:
        """Ask the provider about the items of a batch that ended without its word: a worker does. Nothing is charged;
        jobs that still run are cancelled there, since nobody waits for them. With ``accept`` nobody is asked: where the
        provider cannot be, it is accepted that nobody will know, and the warning goes."""
        found = await self._remote_one(batch, "which no provider knows", "only jobs at a provider are reconciled")
        if accept:
            return Reconciling(None, await self._remote.accept_unknown(found.id, reason or ""))
        return await self._remote.reconcile(found.id, reason)

    @action("POST /api/batches/reconcile", said="{done.told}", status=202)
    async def reconcile_all(self, reason: Reason = None, accept: Accept = False) -> Reconciling:
        """Ask providers about all items that ended without their word: a worker does."""
        if accept:
            raise InvalidInput("accept is for one batch", hint="POST /api/batches/ID/reconcile")
        return await self._remote.reconcile(None, reason)

    async def reconciled(self, task: UUID) -> dict[str, Any] | None:
        """Returns what came of it; None while it is not done."""
        return await self._remote.reconciled(task)

    async def create(
        self, wanted: BatchRequest, *, tasks: Many | None = None, items: Payloads | None = None
    ) -> ShownBatch:
        """Makes a batch of tasks, or of items that are jobs at a provider. Of what it waits for, only that its account
        cannot pay for it is said."""
        wanted.check(tasks is not None, items is not None)
        if tasks is not None:
            return shown_batch(await self._create_of_tasks(tasks, **wanted.of_tasks()), ())
        made = await self._remote.create(() if items is None else items, wanted)
        waits = await self._remote.waits_for(made.id)
        return shown_batch(await self.find(made.id), [one for one in waits if one.code == MONEY])

    async def _create_of_tasks(self, tasks: Many, **given: Any) -> Batch:
        who, batch = self._session.may(Role.OPERATOR), new_id()
        what = plan(self._session.registry, **given, parent=None, batch=batch, by=who)

        async def own() -> Store:
            return self._store

        return await NewBatch(Way(self._session.registry, self._store.apply, own), batch, what, tasks)

    def check(self, wanted: BatchRequest, tasks: Iterable[tuple[str, Given]]) -> None:
        """Refuses a task that could not be enqueued, by what it is called; nothing is written."""
        self._session.may(Role.OPERATOR)
        wanted.check(tasks=True, items=False)
        for what, given in tasks:
            as_new(self._session.registry, given, what)

    async def unended(self, most: int) -> int:
        """Returns how many have not ended, up to so many of each sort."""
        self._session.may(Role.VIEWER)
        [row] = await self._store.sql.feature_rows(FEATURE, "open_ones", most)
        return int(row["unended"] + row["unsettled"])

    async def find(self, batch: UUID | str) -> Batch:
        """Returns a batch with the counts of its items."""
        self._session.may(Role.VIEWER)
        return self._seen(await find_either(self._store, parse_id(str(batch), BATCH)))

    def _seen(self, batch: Batch) -> Batch:
        """Returns what the caller may see of a batch: its name, key and meta are others' words, and the path of its
        webhook may be a secret."""
        whole, part = self._session.caller.role >= Role.OPERATOR, batch.remote
        if part is not None:
            url = part.webhook_url if whole else part.webhook_url and origin(part.webhook_url)
            part = replace(part, unit=self._session.settings.of(LedgerSettings).unit, webhook_url=url)
        return replace(batch if whole else without_words(batch), remote=part)

    async def is_remote(self, batch: UUID | str) -> bool:
        """Returns whether the items of a batch are jobs at a provider; refused where there is no such batch."""
        self._session.may(Role.VIEWER)
        wanted = parse_id(str(batch), BATCH)
        if await self._store.sql.feature_rows(FEATURE, "remote_by_id", str(wanted)):
            return True
        await find_batch(self._store, wanted)
        return False

    async def waits_for(self, batch: Batch) -> builtins.list[WaitReason]:
        """Returns what its items wait for: a pause, an open circuit, no worker; at a provider each of them."""
        if batch.remote is not None:
            return await self._remote.waits_for(batch.id)
        self._session.may(Role.VIEWER)
        return await tasks_wait_for(self._store, batch.id) if batch.pending else []

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
        if not await self.is_remote(batch):
            page = await self.tasks(
                batch, states=states, kind=kind, failure_type=failure_type, limit=limit, before=after
            )
            seen = [item_of_task(views.task(task, self._session.sight)) for task in page.tasks]
            return ItemPage(seen, None if page.next_before is None else str(page.next_before))
        if kind is not None:
            raise InvalidInput("items at a provider are of one kind", hint="leave out the kind")
        if after is not None and not after.isdecimal():
            raise InvalidInput(f"after is the place of an item, not {after!r}", hint="what the last page ended with")
        found = await self._remote.items(
            batch, states=states, failure_type=failure_type, after=int(after or 0), limit=limit + 1
        )
        more = str(found[limit - 1].n) if len(found) > limit else None
        return ItemPage([item_of_remote(one) for one in found[:limit]], more)

    async def tasks(
        self,
        batch: UUID | str,
        *,
        states: Sequence[str] = (),
        kind: str | None = None,
        failure_type: str | None = None,
        limit: int = 50,
        before: UUID | str | None = None,
    ) -> inspect.Page:
        """Returns the items of a batch of tasks as tasks, the latest first, live and finished; ``states`` are those of
        items."""
        found = await find_batch(self._store, parse_id(str(batch), BATCH))
        last = None if before is None else parse_id(str(before))
        wanted = task_states(states)
        query = Query(wanted, kind, limit=limit, before=last, failure_type=failure_type, join=str(found.id))
        return await TaskService(self._session).list(query)

    async def to_retry(self, batch: Batch) -> ToRetry:
        """Returns what a retry of the failed items of a batch is about."""
        return ToRetry(batch.failed) if batch.remote is None else await self._remote.to_retry(batch.id)

    async def _act_on_tasks(
        self, kind: Action, found: Batch, reason: str | None, dry_run: bool, how: How = AS_EVER
    ) -> Acted:
        """Acts as one operation. Cancelled is what waits now, what runs is asked, and nothing more can be added: where
        a second operator has to agree, then. Items that are retried are counted again when they end; ``on_success``
        follows if then all have completed."""
        which, operations = FailureFilter(join=str(found.id)), OperationService(self._session)
        if dry_run:
            seen = await operations.preview(kind, which)
            return Acted(found, seen.number, needs_approval=seen.approval, dry_run=True)
        if kind is Action.RETRY:
            if not found.failed:
                raise InvalidTransition(
                    f"no item of batch {found.id} is failed", hint="cancelled ones are retried by their ids"
                )
            begun = await operations.begin(kind, which, reason=reason, how=how)
            return await self._begun(found.id, begun, "being retried")
        if found.state is not BatchState.PROCESSING:
            raise InvalidTransition(
                f"batch {found.id} is {found.state}", hint="only one that has not ended is cancelled"
            )
        if found.asked:
            raise Conflict(
                f"batch {found.id} waits for a second operator to cancel it",
                hint=f"redrive approvals; the operation is {found.cancel_operation}",
            )
        who = self._who
        beside = marking(found.id, who, reason, scope=found.scope)
        begun = await operations.begin(kind, which, reason=reason, beside=beside)
        if begun.approval is not None:
            row = {"id": str(found.id), "operation": begun.operation.id, "by": who, "reason": reason}
            await self._store.apply(Commit(rows=[Rows(FEATURE, "asked", (row,))]))
        return await self._begun(found.id, begun, "being cancelled; nothing more can be added")

    async def _begun(self, batch: UUID, begun: BegunOperation, told: str) -> Acted:
        number, approval = begun.operation.total, begun.approval
        record = await OperationService(self._session).record(begun.operation.id)
        return Acted(
            await self.find(batch),
            number,
            f"{items_are(number)} {told}",
            record,
            approval,
            None if approval is None else approval.body["needed"],
        )

    async def _act(
        self,
        name: str,
        found: Batch,
        number: int,
        reason: str | None,
        dry_run: bool,
        items: Sequence[int] = (),
        seen: ToRetry = NOTHING_TO_RETRY,
    ) -> Acted:
        """Acts on a batch at a provider, or says what that would be about: so many items. ``seen``: of a retry."""
        done = Done(number) if dry_run else await self._remote.act(name, found, reason, items)
        now = found if dry_run else await self.find(found.id)
        number, charge = done.items, _charge(name, now, done.items)
        needed = None if done.approval is None else done.approval.body["needed"]
        skipped = seen.failed - number if name == RETRY_FAILED else 0
        told = _told(name, now, number, charge, bool(items)) + (f"; {skipped:,} left out" if skipped else "")
        return Acted(
            now,
            number,
            "" if dry_run else told,
            approval=done.approval,
            needs_approval=await self._remote.needs(name, found, number) if dry_run else needed,
            charge=charge,
            skipped=skipped,
            notes=seen.notes(found.id),
            dry_run=dry_run,
        )

    async def _remote_one(self, batch: UUID | str, why: str, hint: str) -> Batch:
        found = await self.find(batch)
        if found.remote is None:
            raise InvalidInput(f"batch {batch} is of tasks, {why}", hint=hint)
        return found

    async def _remote_failures(self, batch: UUID) -> Failures:
        found = await self._remote.progress(batch)
        join = found.batch.join_id if found.by_type else None
        causes = [] if join is None else await self._causes(join)
        return Failures(found.by_type, found.by_code, causes, await self._remote_trend(found.batch))

    async def _remote_trend(self, batch: RemoteBatch) -> Trend | None:
        history = await self._remote.history(batch)
        if history is None or batch.dispatched_at is None or not history.failed:
            return None
        return Trend(batch.dispatched_at, history.seconds / STRETCHES, history.failed)

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

    async def _causes(self, join: UUID) -> builtins.list[FailedCause]:
        """Returns the causes of the members of a join that are failed now, the largest first."""
        found = await list_causes(self._store, FailureFilter(join=str(join)), limit=MOST_CAUSES)
        return [declared.view_of(FailedCause, one.row, failed=one.failed) for one in found.causes]

    @property
    def _remote(self) -> RemoteBatchActions:
        return RemoteBatchActions(self._session)


def _charge(name: str, batch: Batch, items: int) -> int | None:
    return None if batch.remote is None or name == CANCEL else batch.remote.price_of(items)


def _told(name: str, batch: Batch, number: int, charge: int | None, chosen: bool) -> str:
    """Returns what came of acting on a batch at a provider; ``chosen``: of some of its items only."""
    assert batch.remote is not None
    unit, left = batch.remote.unit, batch.remote.uncharged
    if name == CANCEL:
        return "cancelled" if batch.ended else "cancelled when what runs has ended"
    if name == RETRY_FAILED:
        return f"{items_are(number)} started again{new_charge(charge, unit)}"
    if not number:
        return "nothing is to be charged: no item ended here whose job is known to have run"
    more = f"; {left} more ran: charge again for the rest" if left and not chosen else ""
    return f"{items_are(number)} completed, {charge or 0} {unit} charged{more}"


def _largest(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))
