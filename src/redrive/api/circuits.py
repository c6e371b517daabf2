"""Routes for circuits: list, open, close, probe."""

from __future__ import annotations

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import By, TheOperator
from redrive.api.shared_routes import api_router

router = api_router("/api/circuits", "control")


@router.get("")
async def circuits(operator: TheOperator) -> list[m.CircuitOut]:
    """Every circuit that workers have declared, the open ones first."""
    return [serialize.circuit(found) for found in await operator.circuits.list()]


@router.post("/{name}/open")
async def open_circuit(name: str, by: By) -> m.CircuitChange:
    """Tasks of its kinds wait, as if the other side were down; a probe comes soon, and closes it if it gets through."""
    return serialize.turned(await by.operator.circuits.open(name, by.reason))


@router.post("/{name}/close")
async def close_circuit(name: str, by: By) -> m.CircuitChange:
    """Tasks of its kinds run at once; it opens again if the other side is still down."""
    return serialize.turned(await by.operator.circuits.close(name, by.reason))


@router.post("/{name}/probe")
async def probe_circuit(name: str, by: By) -> m.CircuitChange:
    """The next probe of an open circuit starts now."""
    return serialize.turned(await by.operator.circuits.probe(name, by.reason))
