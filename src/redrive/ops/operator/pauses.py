"""Pauses of queues, kinds, groups and schedules, as they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from redrive.ops.operator.declared import Open


@dataclass(slots=True, frozen=True)
class PauseView:
    """What is paused, by whom, since when and why."""

    target: Annotated[str, Open("queue, kind, group or schedule.", column="what")]
    name: Annotated[str, Open(column="name")]
    actor: Annotated[str, Open(column="by")]
    reason: Annotated[str | None, Open(column="why")]
    at: Annotated[datetime, Open(column="since")]


@dataclass(slots=True, frozen=True)
class PauseChange:
    """Whether something is paused now; ``changed`` is False where it was so already."""

    target: Annotated[str, Open()]
    name: Annotated[str, Open()]
    paused: Annotated[bool, Open()]
    changed: Annotated[bool, Open()]
