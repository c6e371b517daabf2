"""Routes for alerts: what fires, what is silenced, and until when."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from redrive.api import models as m
from redrive.api.access import TheOperator
from redrive.api.routers import api_router
from redrive.kernel.alerts.book import Silence
from redrive.ops.operator.alerts import alerts_shown, silence_shown

router = api_router("/api/alerts", "operations")


class SilenceOut(m.Out):
    rule: str
    queue: str | None
    until: datetime
    by: str
    reason: str | None
    at: datetime


class AlertOut(m.Out):
    key: str
    state: str
    rule: str
    queue: str | None
    level: str
    text: str
    detail: str
    value: float
    since: datetime
    fired_at: datetime | None
    resolved_at: datetime | None
    fix: str
    runbook: str
    triage: dict[str, Any] | None
    silence: SilenceOut | None


class AlertsOut(m.Out):
    """``worst`` is that of what fires and nobody has silenced. ``evaluatedAt``: when the rules last were; ``stale``:
    too long ago, which is a warning of its own."""

    worst: str
    stale: bool
    evaluated_at: datetime | None
    firing: list[AlertOut]
    pending: list[AlertOut]
    resolved: list[AlertOut]
    silences: list[SilenceOut]


class ServiceOut(m.Out):
    """``good`` tasks started within ``waitSeconds``, ``bad`` ones did not, ``overdue`` of them wait still
    (1,000: so many or more). ``budgetLeft`` is a share, below 0 when more is late than allowed."""

    queue: str
    wait_seconds: float
    target: float
    days: int
    good: int
    bad: int
    overdue: int
    share: float
    budget_left: float
    burn_rates: dict[str, float]


class SilenceIn(m.In):
    """Without a queue, wherever the rule is broken. It always ends: within 30 days."""

    rule: str
    until: m.Moment
    queue: str | None = None
    reason: str | None = None
    actor: str | None = None


class TrialIn(m.In):
    actor: str | None = None


class DestinationOut(m.Out):
    """``fault``: why it could not be reached; null where the message was sent."""

    name: str
    fault: str | None


class TrialOut(m.Out):
    destinations: list[DestinationOut]


class UnsilenceIn(m.In):
    rule: str
    queue: str | None = None
    reason: str | None = None
    actor: str | None = None


@router.get("")
async def alerts(operator: TheOperator) -> AlertsOut:
    """What fires now, the worst first; what is broken and not for long enough yet; what has ended lately."""
    return AlertsOut.model_validate(alerts_shown(await operator.alerts.look()))


@router.get("/slo")
async def service_levels(operator: TheOperator) -> list[ServiceOut]:
    """How each queue with an objective stands: starts in time and late ones, budget left, burn rates."""
    found = await operator.alerts.services()
    return [
        ServiceOut(
            queue=queue,
            wait_seconds=one.objective.wait_seconds,
            target=one.objective.target,
            days=one.objective.days,
            good=one.good,
            bad=one.bad,
            overdue=one.overdue,
            share=one.share,
            budget_left=one.left,
            burn_rates=dict(one.burn),
        )
        for queue, one in found.items()
    ]


@router.post("/silences", status_code=201)
async def silence_alert(body: SilenceIn, operator: TheOperator) -> SilenceOut:
    """Nobody is told of a rule until that time."""
    named = operator.named(body.actor)
    return _silence(await named.alerts.silence(body.rule, body.until, body.queue, body.reason))


@router.post("/silences/end", status_code=204)
async def unsilence_alert(body: UnsilenceIn, operator: TheOperator) -> None:
    """Ends a silence now: what fires still is told then."""
    await operator.named(body.actor).alerts.unsilence(body.rule, body.queue, body.reason)


@router.post("/test")
async def test_destinations(operator: TheOperator, body: TrialIn | None = None) -> TrialOut:
    """Sends a message to every destination of alerts that this process knows; workers may know others."""
    found = await operator.named(body.actor if body else None).alerts.test()
    return TrialOut(destinations=[DestinationOut(name=name, fault=fault) for name, fault in found.items()])


def _silence(silence: Silence) -> SilenceOut:
    return SilenceOut.model_validate(silence_shown(silence))
