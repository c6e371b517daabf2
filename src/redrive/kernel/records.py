"""Small documents of the product's own: plans, bulk operations, approvals, tokens, notes on causes.

They are few, each has one writer at a time, and they change in the same transaction as the tasks and audit rows that
they are about. One mechanism serves them all, on every store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from redrive.kernel.applied import Applied


@dataclass(slots=True, frozen=True)
class Put:
    """Writes a document if nobody changed it since it was read: ``version`` is that of the row read, 0 for a new
    one."""

    collection: str
    id: str
    # What it says may depend on what became of the rest of its Commit.
    body: Mapping[str, Any] | Callable[[Applied], Mapping[str, Any] | None]
    version: int = 0
    state: str = ""  # what lists are filtered by
    keep: float | None = None  # seconds from now until it may be removed; None: for good

    def resolve(self, applied: Applied) -> Mapping[str, Any] | None:
        """Returns what to write, or None when nothing is to be written after what became of the rest."""
        return self.body(applied) if callable(self.body) else self.body


@dataclass(slots=True, frozen=True)
class Record:
    collection: str
    id: str
    state: str
    version: int
    body: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    seq: int
    expires_at: datetime | None = None  # when it may be removed; None: it stays

    def left(self, now: datetime) -> float | None:
        """Returns for how many seconds it is still kept, for who writes it again; None: for good."""
        return None if self.expires_at is None else max((self.expires_at - now).total_seconds(), 0.0)
