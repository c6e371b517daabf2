"""Doctor over all connections of an application: what is wrong with each, and which of them cannot be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from redrive.errors import StoreError
from redrive.kernel.diagnosis import Finding, Level
from redrive.ops.access import Role, error_text_for
from redrive.ops.connections import on_each, same
from redrive.ops.doctor import ORDER
from redrive.ops.operator.operator import Operator


class ConnectionFinding(NamedTuple):
    """A finding, and the connection that it is about if there are several."""

    finding: Finding
    connection: str | None = None


class Examined(NamedTuple):
    """What is wrong with one connection, and which store it is."""

    findings: list[Finding]
    identity: str


async def examined(own: Operator, queue: str | None = None) -> Examined:
    return Examined(await own.health.examine(queue), await own.health.identity())


def together(
    found: Mapping[str, Examined], away: Mapping[str, StoreError], role: Role, *, named: bool
) -> list[ConnectionFinding]:
    """Returns what is wrong with each connection, the worst first; one that cannot be looked at is among it, and one
    that is another's store."""
    every = [ConnectionFinding(one, name if named else None) for name, own in found.items() for one in own.findings]
    every += [_same(*pair) for pair in same({name: own.identity for name, own in found.items()})]
    every += [ConnectionFinding(one, one.about and one.about[1]) for one in away_findings(away, role)]
    return sorted(every, key=lambda one: ORDER[one.finding.level])


def away_findings(away: Mapping[str, StoreError], role: Role) -> list[Finding]:
    """Returns that connections cannot be looked at, in words for somebody of this role."""
    return [_away(name, *error_text_for(error, role)) for name, error in away.items()]


async def examine_all(operator: Operator, queue: str | None = None) -> list[ConnectionFinding]:
    """Returns what is wrong with each connection of the application, the worst first."""
    found, away = await on_each(operator.connections, operator.at, lambda own: examined(own, queue))
    return together(found, away, operator.caller.role, named=len(operator.connections) > 1)


async def others_away(operator: Operator) -> list[Finding]:
    """Returns which of the other connections cannot be looked at."""
    others = [name for name in operator.connections if name != operator.connection]
    _, away = await on_each(others, operator.at, lambda own: own.health.now())
    return away_findings(away, operator.caller.role)


def _away(name: str, text: str, hint: str | None) -> Finding:
    said = f"connection {name} cannot be looked at: {text}"
    return Finding(Level.CRITICAL, "CONNECTION_AWAY", said, hint, ("connection", name))


def _same(one: str, other: str) -> ConnectionFinding:
    said = f"it is the same store as {one}: whatever is there is counted twice"
    fix = "remove one of them from redrive.toml"
    return ConnectionFinding(Finding(Level.WARNING, "same_store", said, fix, ("connection", other)), other)
