"""Serves ``/api/doctor``: what is wrong, how bad it is, and what to do."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import Query

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import OnConnection, TheOperator
from redrive.api.shared_routes import api_router
from redrive.ops.doctor import worst
from redrive.ops.doctor_of_all import Told, examine_all

router = api_router("/api", "operations")


@router.get("/doctor", response_model_exclude_unset=True)
async def doctor(
    operator: TheOperator,
    queue: Annotated[str | None, Query(max_length=200)] = None,
    connection: OnConnection = None,
) -> m.DoctorOut:
    """Of all connections, or of one, the worst first. ``queue`` leaves out what is about others; ``triage`` are the
    notes of those who know it."""
    if connection is None:
        found = await examine_all(operator, queue)
    else:
        found = [Told(one, operator.told_connection) for one in await operator.health.examine(queue)]
    return m.DoctorOut(
        worst=worst([one.finding for one in found]).value,
        findings=[serialize.finding(one.finding, operator, one.connection) for one in found],
        triage={name: asdict(note) for name, note in operator.health.triage(queue).items()},
    )
