"""Failures by type: totals, trend, and the application's own rules."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import Field

from redrive.api import models as m
from redrive.api.access import TheOperator
from redrive.api.routers import api_router

router = api_router("/api", "failures")


class TypeOut(m.Out):
    type: str
    meaning: str
    failed: int = Field(description="tasks that are failed by it now")
    attempts: int = Field(description="attempts that failed by it in the period")
    trend: list[int | None] = Field(description="the same for each of `moments`; null where nobody looked")


class RuleOut(m.Out):
    """A row of the application's own table: what has to fit, and what failures are that it fits."""

    status: list[int | str]
    exception: list[str]
    code: list[str]
    words: list[str]
    reason: str
    failure_type: str
    retry: bool


class FailureTypesOut(m.Out):
    period: str
    step_seconds: float
    moments: list[datetime]
    types: list[TypeOut]
    rules: list[RuleOut]


@router.get("/failure-types")
async def failure_types(
    operator: TheOperator,
    period: Annotated[str, Query(description="1h, 24h, 7d, 30d or 1y")] = "24h",
    queue: str | None = None,
    kind: str | None = None,
) -> FailureTypesOut:
    """What tasks are failed by now, and by what attempts failed over a period: model_error, param_error, timeout,
    network, unknown; of everything, or of a queue or kind."""
    return FailureTypesOut.model_validate(await operator.failures.types(period, queue, kind))
