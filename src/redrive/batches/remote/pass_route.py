"""``POST /api/internal/batch-worker``: one bounded pass over the remote batches, for whoever has only a scheduler."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import Field

from redrive.api.access import TheApp
from redrive.api.worker_run import TriggeredWorker, described
from redrive.batches.remote.passes import Passes
from redrive.feature.api import PROBLEMS, In, Out

router = APIRouter(prefix="/api/internal/batch-worker", tags=["remote batches"], responses=PROBLEMS)


class PassIn(In):
    """When it is enough, and on which of several connections."""

    max_seconds: Annotated[float, Field(gt=0, le=3600)] = 25.0
    connection: str | None = None


class PassOut(Out):
    """What a pass has done: ``dispatched``, ``settled`` and ``released`` are batches, all else are items."""

    dispatched: int = Field(description="Batches that were begun, or failed for want of money.")
    started: int
    polled: int
    completed: int
    failed: int
    settled: int
    released: int = Field(description="Cancelled batches whose unstarted items were given back.")
    put_off: int = Field(description="Items that were due, and beyond what one pass does.")
    seconds: float
    more: bool = Field(description="Something is due now: the next call need not wait for its minute.")


@router.post("", dependencies=[Depends(described)])
async def batch_worker(request: Request, app: TheApp, body: PassIn | None = None) -> PassOut:
    """Dispatch, start, poll and settle remote batches once, within the bounds of ``BATCH_WORKER_MAX_…``. One call at a
    time in each process; in several processes each does its own part."""
    wanted = body or PassIn()
    triggered: TriggeredWorker = request.app.state.triggered
    done = await app.of(Passes).make(triggered.run, wanted.max_seconds, wanted.connection)
    counts = {name: getattr(done, name) for name in PassOut.model_fields if name != "seconds"}
    return PassOut(seconds=round(done.seconds, 3), **counts)
