"""Route that lists the workers that were seen lately."""

from __future__ import annotations

from fastapi import APIRouter

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import TheOperator
from redrive.api.problems import PROBLEMS

router = APIRouter(prefix="/api", tags=["control"], responses=PROBLEMS)


@router.get("/workers")
async def workers(operator: TheOperator) -> list[m.WorkerOut]:
    """Workers that were seen within the last day."""
    return [serialize.worker(found) for found in await operator.control.workers()]
