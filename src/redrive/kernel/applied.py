"""What became of a Commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from redrive.kernel.retry_guard import Withheld
    from redrive.kernel.task import AuditRow, Enqueued, State


@dataclass(slots=True)
class Applied:
    """What a store did with a Commit. Whatever is not listed here was applied as it was asked for."""

    enqueued: list[Enqueued] = field(default_factory=list)
    lost: set[UUID] = field(default_factory=set)
    instead: dict[UUID, State] = field(default_factory=dict)  # of moves that led elsewhere than asked: where they led
    skipped: dict[UUID, str | None] = field(default_factory=dict)  # of a bulk action: the states of lost ones
    refused: dict[UUID, str] = field(default_factory=dict)  # rows that stood in the way, and what the store said
    withheld: dict[UUID, Withheld] = field(default_factory=dict)  # of lost ones: those that a feature does not let go
    fired: set[str] = field(default_factory=set)
    repeated: set[str] = field(default_factory=set)
    asked_before: set[UUID] = field(default_factory=set)  # running tasks that somebody had asked to stop already
    pruned: set[int] = field(default_factory=set)
    erased: dict[str, int] = field(default_factory=dict)  # how many, by place
    concluded: list[AuditRow] = field(default_factory=list)  # the rows of the conclusion, as they were written
