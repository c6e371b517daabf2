"""The table of all connections, where there are several."""

from __future__ import annotations

from collections.abc import Mapping

from redrive.console.addresses import home
from redrive.console.live import Sample, seldom
from redrive.console.templates_env import render
from redrive.ops.connections import ConnectionTotals, totals_of
from redrive.ops.operator import Operator

EVERY_S = 2.0
Everywhere = tuple[list[ConnectionTotals], dict[str, int]]


async def look(operator: Operator) -> Everywhere | None:
    """Returns how each connection is, and the totals over all; None where there is only one."""
    return await totals_of(operator.connections, operator.at) if len(operator.connections) > 1 else None


def sampler(_: str) -> Sample:
    return seldom(sample, EVERY_S)


async def sample(operator: Operator) -> Mapping[str, str]:
    everywhere = await totals_of(operator.connections, operator.at)
    return {"#connections": render("regions/connections.html", operator, everywhere=everywhere, first_page=home)}
