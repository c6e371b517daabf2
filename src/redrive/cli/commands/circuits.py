"""``redrive circuits``: which are open and why; open, close and probe one."""

from __future__ import annotations

from redrive.cli.declared import group_of
from redrive.ops.operator.circuits import CircuitService

circuits_cli = group_of(CircuitService)
