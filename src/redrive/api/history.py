"""How things went, step by step: what charts are drawn from."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import Field

from redrive.api import models as m
from redrive.api.access import TheOperator
from redrive.api.shared_routes import api_router

router = api_router("/api", "operations")

Counts = list[int | None]
Values = list[float | None]


class HistoryOut(m.Out):
    """Each list has a value for each of ``moments``, where a step begins; null where nobody looked. Times are in
    seconds."""

    period: str
    queue: str | None
    kind: str | None
    step_seconds: float
    moments: list[datetime]
    started: Counts
    completed: Counts
    failed: Counts = Field(description="for good")
    cancelled: Counts = Field(description="while they ran")
    retried: Counts
    attempts_failed: dict[str, Counts] = Field(description="failed attempts, by failure type")
    depth: Values = Field(description="ready and not started; this and the next four as the mean of the step's looks")
    delayed: Values
    running: Values
    paused: Values
    dead: Values = Field(description="failed, and not dealt with")
    oldest_age: Values = Field(description="how long the first ready task of a queue had waited, at most")
    wait: dict[str, Values] = Field(description="from when a task was due to its first start: p50, p95, p99")
    run: dict[str, Values] = Field(description="how long attempts ran: p50, p95, p99; 3600 means that or more")


class RateOut(m.Out):
    completed: list[int]
    failed: list[int]
    failure_rate: float | None


class RatesOut(m.Out):
    """The last hour by the minute."""

    moments: list[datetime]
    kinds: dict[str, RateOut]
    queues: dict[str, RateOut]


@router.get("/history")
async def history(
    operator: TheOperator,
    period: Annotated[str, Query(description="1h, 24h, 7d, 30d or 1y")] = "1h",
    queue: str | None = None,
    kind: str | None = None,
) -> HistoryOut:
    """How many tasks ended and how, how many waited, and how long: of everything, a queue, a kind, or a kind in a
    queue."""
    return HistoryOut.model_validate(await operator.health.history(period, queue, kind))


@router.get("/rates")
async def rates(operator: TheOperator) -> RatesOut:
    """Tasks that ended in each minute of the last hour, by kind and by queue."""
    return RatesOut.model_validate(await operator.health.rates())
