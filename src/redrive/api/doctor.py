"""Serves ``/api/doctor``: what is wrong, how bad it is, and what to do."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import TheOperator
from redrive.api.problems import PROBLEMS
from redrive.ops.doctor import worst

router = APIRouter(prefix="/api", tags=["operations"], responses=PROBLEMS)


@router.get("/doctor")
async def doctor(operator: TheOperator, queue: Annotated[str | None, Query(max_length=200)] = None) -> m.DoctorOut:
    """The worst first. ``queue`` leaves out what is about others; ``triage`` are the notes of those who know it."""
    found = await operator.health.examine(queue)
    return m.DoctorOut(
        worst=worst(found).value,
        findings=[serialize.finding(one, operator) for one in found],
        triage={name: asdict(note) for name, note in operator.health.triage(queue).items()},
    )
