"""``redrive queues`` and ``redrive kinds``: what is in them, who serves them, what is paused and limited."""

from __future__ import annotations

from redrive.cli.declared import command_of
from redrive.ops.operator.control import ControlService

queues = command_of(ControlService, "queues")
kinds = command_of(ControlService, "kinds")
