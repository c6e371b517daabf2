"""Routes for workers: those that were seen lately, and to have them end."""

from __future__ import annotations

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import By, TheOperator
from redrive.api.shared_routes import api_router
from redrive.ops.operator.control import Drained

router = api_router("/api", "control")


@router.get("/workers")
async def workers(operator: TheOperator) -> list[m.WorkerOut]:
    """Workers that were seen within the last day."""
    return [serialize.worker(found) for found in await operator.control.workers()]


@router.post("/workers/drain")
async def drain_all(by: By) -> m.DrainChange:
    """Every worker claims no more, finishes what it runs, and ends. Each hears of it within seconds."""
    return _drained(await by.operator.control.drain(None, by.reason))


@router.post("/workers/{worker_id}/drain")
async def drain(worker_id: str, by: By) -> m.DrainChange:
    """The worker claims no more, finishes what it runs, and ends. It hears of it within seconds."""
    return _drained(await by.operator.control.drain(worker_id, by.reason))


def _drained(found: Drained) -> m.DrainChange:
    return m.DrainChange(asked=found.asked, already=found.already)
