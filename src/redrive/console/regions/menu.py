"""The numbers beside the pages in the menu, and the banner of alerts, which are on every page."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from redrive.console.live import Number, Sample, Sampler
from redrive.console.templates_env import render
from redrive.console.text import short_number
from redrive.kernel.operation import Status
from redrive.ops.approvals import PENDING
from redrive.ops.operator import Operator

logger = logging.getLogger("redrive.console")
MOST = 50


def sampler(_: str) -> Sample:
    return sample


def with_numbers(numbers: Mapping[str, Number]) -> Sampler:
    """Returns the sampler of the menu with one more number for each feature that has one."""

    async def sampled(operator: Operator) -> Mapping[str, str]:
        own = {name: await _number(name, count, operator) for name, count in numbers.items()}
        return {**await sample(operator), **_badges(own)}

    return lambda _: sampled


async def _number(name: str, count: Number, operator: Operator) -> int:
    """Returns a feature's number; one that fails must not take the others away."""
    try:
        return await count(operator)
    except Exception:
        logger.exception("the number of %s is missing", name, extra={"event": "console.badge", "feature": name})
        return 0


async def sample(operator: Operator) -> Mapping[str, str]:
    """Returns how many tasks are failed, operations run, approvals wait and alerts fire, nothing where it is none; and
    the banner of alerts."""
    failed = await operator.failures.count()
    running = await operator.operations.records(states=(Status.RUNNING, Status.PAUSED), limit=MOST)
    waiting = await operator.approvals.records(states=(PENDING,), limit=MOST)
    fires = await operator.alerts.current()
    numbers = {"failed": failed, "operations": len(running), "approvals": len(waiting), "alerts": len(fires.loud)}
    return {**_badges(numbers), "#alert-banner": render("regions/alert_banner.html", operator, loud=fires.loud)}


def _badges(numbers: Mapping[str, int]) -> dict[str, str]:
    return {f"badge:{name}": short_number(n) if n else "" for name, n in numbers.items()}
