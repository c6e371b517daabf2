"""Begins rebuilds and comparisons of projections, as operations that workers carry out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.errors import ChangedMeanwhile, Conflict
from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.failed import FailureFilter
from redrive.kernel.operation import COLLECTION, Operation, Work
from redrive.kernel.task import check_int, check_text
from redrive.ops.actions import check_actor
from redrive.ops.allowance import UNRESTRICTED
from redrive.ops.operations import lifecycle
from redrive.outbox.index_job import REBUILD, VERIFY, IndexJob, Phase, job_of
from redrive.outbox.operation_driver import is_over, rebuildable
from redrive.outbox.table_source import source_for

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.outbox.projection import Projection

MOST_ALLOWED = 1_000_000_000  # documents that a new index may refuse
TRIES = 5  # each is lost to somebody who has changed the job: it cannot go on for long


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
    if record is not None and not is_over(Operation.of(record)):
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
