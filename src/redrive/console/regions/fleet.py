"""The table of workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from redrive.console.templates_env import render
from redrive.ops.operator import Operator


def sampler(_: str) -> Callable[[Operator], Awaitable[Mapping[str, str]]]:
    return sample


async def sample(operator: Operator) -> Mapping[str, str]:
    fleet, now = await operator.workers.fleet(), await operator.health.now()
    return {"#fleet": render("regions/fleet.html", operator, fleet=fleet, now=now)}
