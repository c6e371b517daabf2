"""Rebuilds and comparisons as operations: people begin them, one worker at a time drives them, and writes down how far
it has come.

Everything that was done is in the operation's record, which changes by its version: whoever goes on with it, after a
crash or beside another worker, goes on where it is; who was overtaken notices, and leaves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from redrive.errors import ChangedMeanwhile, Conflict, InvalidInput, StoreUnavailable, StoreUnusable
from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import COLLECTION, FINAL, Operation, Status, Work
from redrive.kernel.task import check_int, check_text
from redrive.ops.actions import check_actor
from redrive.ops.allowance import UNRESTRICTED
from redrive.ops.operations import lifecycle
from redrive.outbox.compare import Comparison
from redrive.outbox.index_job import REBUILD, VERIFY, IndexJob, Phase, job_of
from redrive.outbox.sink import Rebuildable
from redrive.outbox.table_source import source_for

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.kernel.records import Record
    from redrive.kernel.task import NewTask
    from redrive.outbox.projection import Projection
    from redrive.outbox.settings import OutboxSettings
    from redrive.outbox.source import Source

logger = logging.getLogger("redrive.outbox")
DRIVER_GONE_AFTER_S = 5.0  # another driver that has not moved for so long is gone, or busy with a slow sink
LONGEST_WAIT_S = 60.0
DRIVE_AT_A_TIME_S = 60.0
WORTH_WAITING_S = 1.0
ERROR = "error"  # of an operation's result: what an error says, which may quote documents
TRIES = 5  # each is lost to somebody who has changed the job: it cannot go on for long
MOST_ALLOWED = 1_000_000_000  # documents that a new index may refuse


class Driver:
    """One worker's part of a rebuild or a comparison: what both do around their own steps."""

    kind: ClassVar[str]  # of the job

    def __init__(
        self,
        store: Store,
        projection: Projection,
        settings: OutboxSettings,
        worker: str,
        stopping: Callable[[], bool],
    ) -> None:
        self.store = store
        self.projection = projection
        self.settings = settings
        self.worker = worker
        self.stopping = stopping
        self._source: Source | None = None
        self._versions: Source | None = None  # the same without documents

    async def drive(self) -> None:
        """Takes one step after the other for a while."""
        ends = time.monotonic() + DRIVE_AT_A_TIME_S
        while not self.stopping() and time.monotonic() < ends:
            try:
                wait = await self.step()
            except ChangedMeanwhile:
                return  # somebody else drives it, or an operator has just paused it
            except (StoreUnavailable, StoreUnusable):
                return  # the heartbeat meets the same trouble, and says so
            if wait is None or wait >= WORTH_WAITING_S:
                return  # the duty comes round again
            await asyncio.sleep(wait)

    async def step(self) -> float | None:
        """Does what comes next. Returns after how many seconds there is more to do; None: nothing of ours."""
        job = await job_of(self.store, self.kind, self.projection.name)
        if job.operation is None:
            return None
        record = await self.store.record(COLLECTION, job.operation)
        operation = None if record is None else Operation.of(record)
        if record is None or operation is None or operation.status in FINAL:
            await self.clean_up(job)
            return None
        wait = await self.waits(operation, record)
        if wait != 0.0:
            return wait
        try:
            return await self.advance(operation, job)
        except (ChangedMeanwhile, StoreUnavailable, StoreUnusable):
            raise
        except Exception as error:  # of the sink or the source: both may be back soon
            if not self.stopping():
                await self.failed(operation, error)
            return None

    async def advance(self, operation: Operation, job: IndexJob) -> float | None:
        """Takes the step that the operation is at; returns after how many seconds there is more to do."""
        raise NotImplementedError

    async def clean_up(self, job: IndexJob) -> None:
        """Ends a job whose operation is over, or is gone."""
        raise NotImplementedError

    async def waits(self, operation: Operation, record: Record) -> float | None:
        """Returns how many seconds it has to wait after what went wrong; None: it is not ours to drive now."""
        # As if it was long ago where the clock was set back: what is written is fenced, and nobody waits for an hour.
        since = abs((await self.store.now() - record.updated_at).total_seconds())
        theirs = operation.driver not in (None, self.worker) and since < DRIVER_GONE_AFTER_S
        if operation.status is not Status.RUNNING or theirs:
            return None
        tries = int(state_of(operation).get("tries") or 0)
        return max(min(2.0 ** (tries - 1), LONGEST_WAIT_S) - since, 0.0) if tries else 0.0

    async def save(
        self,
        operation: Operation,
        *,
        job: IndexJob | None = None,
        done: int = 0,
        skipped: int = 0,
        note: str | None = None,
        result: dict[str, Any] | None = None,
        events: Sequence[NewTask] = (),
        **state: Any,
    ) -> None:
        """Writes down how far it has come, if nobody else has in between. ``job`` and ``events`` land with it. What
        went wrong before is over."""
        work = operation.work
        assert work is not None
        before = {name: value for name, value in work.result.items() if name != ERROR}
        after = replace(
            operation,
            done=operation.done + done,
            total=operation.total and max(operation.total, operation.done + done),  # it may have grown meanwhile
            skipped=operation.skipped + skipped,
            note=note,
            driver=self.worker,
            what=replace(work, state={**work.state, "tries": 0, **state}, result={**before, **(result or {})}),
        )
        puts = [after.put()] if job is None else [after.put(), job.put()]
        await self.store.apply(Commit(puts=puts, enqueues=list(events)))

    async def write(self, job: IndexJob) -> None:
        """Writes the job's own record, if nobody else has in between."""
        await self.store.apply(Commit(puts=[job.put()]))

    async def end(self, operation: Operation, status: Status, job: IndexJob, note: str | None = None) -> None:
        """Writes down that it is over, with the row that sums it up; ``job`` lands with it."""
        ended = operation.ended(status, note)
        await self.store.apply(replace(ended, puts=[*ended.puts, job.put()]))
        what = "" if operation.work is None else f"{operation.verb} of {operation.work.subject}"
        extra = {"event": f"outbox.{operation.verb}.{status.value}", "operation_id": operation.id}
        logger.info("%s is %s%s", what, status.value, f": {note}" if note else "", extra=extra)

    async def failed(self, operation: Operation, error: Exception) -> None:
        """Writes down what went wrong: it is tried again later, and later each time."""
        tries = int(state_of(operation).get("tries") or 0) + 1
        note = f"is tried again, after {type(error).__name__}"  # everybody sees it: what is quoted stands elsewhere
        with suppress(ChangedMeanwhile):  # somebody else drives it, or an operator has just ended it
            await self.save(operation, note=note, result={ERROR: str(error)[:300]}, tries=tries)

    # -- what it works with ----------------------------------------------------------------------------------------

    async def source(self) -> Source:
        if self._source is None:
            self._source = await source_for(self.store, self.projection)
        return self._source

    def sink(self) -> Rebuildable:
        return rebuildable(self.projection)

    async def count(self) -> int:
        """Returns how many entities the source has, where it can say; else 0."""
        count: Any = getattr(await self.source(), "count", None)
        return 0 if count is None else int(await count())

    async def comparison(self, index: str | None = None) -> Comparison:
        """Returns what compares the source with an index; None: the live one."""
        if self._versions is None:
            self._versions = await source_for(self.store, self.projection, documents=False)
        return Comparison(self.store, self.projection, await self.source(), self._versions, self.sink(), index)


def rebuildable(projection: Projection) -> Rebuildable:
    """Returns the sink of a projection, if it can be rebuilt and compared."""
    sink = projection.sink_to_look_at()
    if not isinstance(sink, Rebuildable):
        raise InvalidInput(
            f"the sink of {projection.name} cannot be rebuilt or compared: it has no index to read or replace",
            hint="full text, PostgreSQL and search servers can, and a sink of your own with the methods of "
            "redrive.outbox.sink.Rebuildable; of HTTP and streams only the receiver can",
        )
    return sink


def state_of(operation: Operation) -> dict[str, Any]:
    """Returns how far its feature's own work has come."""
    return {} if operation.work is None else dict(operation.work.state)


async def begin_rebuild(
    store: Store,
    projection: Projection,
    *,
    actor: str,
    reason: str | None = None,
    allow_refused: int = 0,
    allow_empty: bool = False,
) -> Operation:
    """Begins to rebuild a projection; workers carry it out. ``allow_refused``: so many documents may be refused by the
    new index, and are missing in it. Refused where that cannot be done, or is under way."""
    check_int(allow_refused, "allow_refused", 0, MOST_ALLOWED)
    state = {"allow_refused": allow_refused, "allow_empty": allow_empty}
    return await _begin(store, projection, REBUILD, state, actor, reason)


async def begin_verify(
    store: Store, projection: Projection, *, actor: str, reason: str | None = None, repair: bool = False
) -> Operation:
    """Begins to compare the index of a projection with its source; workers carry it out. ``repair``: what differs is
    published anew."""
    return await _begin(store, projection, VERIFY, {"repair": repair}, actor, reason)


async def _begin(
    store: Store, projection: Projection, kind: str, state: dict[str, Any], actor: str, reason: str | None
) -> Operation:
    who, why = check_actor(actor), check_text(reason, "reason")
    rebuildable(projection)
    await source_for(store, projection)
    for tries_left in reversed(range(TRIES)):
        try:
            return await _begin_now(store, projection, kind, state, who, why)
        except ChangedMeanwhile:  # a worker has cleared the last one away, or another has begun: look again
            if not tries_left:
                raise
    raise AssertionError


async def _begin_now(
    store: Store, projection: Projection, kind: str, state: dict[str, Any], who: str, why: str | None
) -> Operation:
    before = await job_of(store, kind, projection.name)
    await _refuse_second(store, before)
    operation_id = str(new_id())
    work = Work("outbox", kind, f"projection {projection.name}", "document", state)
    operation = Operation(operation_id, work, FailureFilter(queue=projection.queue), who, why, 0)
    index = _index_of(operation_id) if kind == REBUILD else None
    job = before.over(Phase.NONE, operation=operation_id, index=index)
    begun, _ = await lifecycle.start(store, operation, UNRESTRICTED, Commit(puts=[job.put()]))
    return begun


async def _refuse_second(store: Store, job: IndexJob) -> None:
    if job.operation is None:
        return
    record = await store.record(COLLECTION, job.operation)
    if record is not None and Operation.of(record).status not in FINAL:
        raise Conflict(
            f"a {job.kind} of {job.projection} is under way",
            hint=f"redrive operations watch {job.operation}, or cancel {job.operation}",
        )
    if job.phase is not Phase.NONE:
        raise Conflict(
            f"the index of the last {job.kind} of {job.projection} is not removed yet",
            hint="a worker that knows the projection does it: redrive outbox work",
        )


def _index_of(operation_id: str) -> str:
    """Returns the name of a new index, which no other has or had."""
    digits = operation_id.replace("-", "")
    return f"r{digits[:12]}{digits[-8:]}"
