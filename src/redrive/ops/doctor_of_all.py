"""Doctor over all connections of an application: what is wrong with each, and which of them cannot be looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from redrive.errors import StoreError
from redrive.kernel.diagnosis import Finding, Level
from redrive.ops.access import Role, told
from redrive.ops.connections import on_each
from redrive.ops.doctor import ORDER
from redrive.ops.operator.operator import Operator


class Told(NamedTuple):
    """A finding, and the connection that it is about if there are several."""

    finding: Finding
    connection: str | None = None


def together(
    found: Mapping[str, Iterable[Finding]], away: Mapping[str, StoreError], role: Role, *, named: bool
) -> list[Told]:
    """Returns what is wrong with each connection, the worst first; one that cannot be looked at is among it."""
    every = [Told(one, name if named else None) for name, several in found.items() for one in several]
    every += [Told(one, one.about and one.about[1]) for one in away_findings(away, role)]
    return sorted(every, key=lambda one: ORDER[one.finding.level])


def away_findings(away: Mapping[str, StoreError], role: Role) -> list[Finding]:
    """Returns that connections cannot be looked at, in words for somebody of this role."""
    return [_away(name, *told(error, role)) for name, error in away.items()]


async def examine_all(operator: Operator, queue: str | None = None) -> list[Told]:
    """Returns what is wrong with each connection of the application, the worst first."""
    found, away = await on_each(operator.connections, operator.at, lambda own: own.health.examine(queue))
    return together(found, away, operator.caller.role, named=len(operator.connections) > 1)


async def others_away(operator: Operator) -> list[Finding]:
    """Returns which of the other connections cannot be looked at."""
    others = [name for name in operator.connections if name != operator.connection]
    _, away = await on_each(others, operator.at, lambda own: own.health.now())
    return away_findings(away, operator.caller.role)


def _away(name: str, text: str, hint: str | None) -> Finding:
    said = f"connection {name} cannot be looked at: {text}"
    return Finding(Level.CRITICAL, "CONNECTION_AWAY", said, hint, ("connection", name))
