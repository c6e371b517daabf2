"""Finds the pauses that keep a waiting task from being claimed."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.kernel.reads import HoldRow
from redrive.kernel.task import State, Task

_WAITING = (State.QUEUED, State.DELAYED)


def holding(task: Task, holds: Sequence[HoldRow]) -> list[HoldRow]:
    """Returns the pauses of its queue, kind or group; resuming one of several does not let it run yet."""
    if task.state not in _WAITING:
        return []
    names = {("queue", task.queue), ("kind", task.kind), ("group", task.group)}
    return [hold for hold in holds if (hold.target, hold.name) in names]


def holds_text(hold: HoldRow) -> str:
    """Returns a pause in words."""
    return f"{hold.target} {hold.name} paused by {hold.actor}" + (f": {hold.reason}" if hold.reason else "")
