"""Audit rows: who did what to what, and why; and the filter by which they are found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from redrive.kernel.machine import Event
from redrive.kernel.retry_guard import Withheld


@dataclass(slots=True, frozen=True)
class Audit:
    """An audit row that a Commit adds. Operators' transitions and controls write their own rows without it.

    ``scope``: whom it is about, where its task does not say so; by it the row is found when that is erased."""

    actor: str
    action: str
    reason: str | None = None
    task_id: UUID | None = None
    bulk_id: str | None = None
    before: Any = None
    after: Any = None
    target: str | None = None
    scope: str | None = None


def action_of(event: Event) -> str:
    """Returns what the audit log calls an operator's move."""
    return "TASK_RETRY" if event is Event.REDRIVE else f"TASK_{event.value.upper()}"


@dataclass(slots=True, frozen=True)
class BulkAction:
    """Marks the transitions of a Commit as one operator's action on many tasks: those that were skipped get rows, and
    one row sums up."""

    id: str
    actor: str
    action: str  # "TASK_RETRY_BATCH": its rows end in _ITEM, _SKIPPED and _SUMMARY
    reason: str | None = None
    facts: Any = None  # what the summary says besides numbers: the filter that was used
    means: str = "failed or cancelled"  # the states it is for
    summary: bool = True  # False for one part of many: whoever does the last one adds them up
    excluded: Mapping[UUID, str] = field(default_factory=dict)  # tasks that were named, and why they are not meant

    def audits(self, moved: int, skipped: Mapping[UUID, str | None]) -> list[Audit]:
        """Returns the rows for skipped tasks and the summary. ``skipped``: the state each of those is in, None for
        tasks that do not exist."""
        rows = [
            Audit(
                self.actor, f"{self.action}_SKIPPED", skip_reason(state, self.means), task_id, self.id, _before(state)
            )
            for task_id, state in skipped.items()
        ] + [
            Audit(self.actor, f"{self.action}_SKIPPED", why, task_id, self.id) for task_id, why in self.excluded.items()
        ]
        if not self.summary:
            return rows
        numbers = {"matched": moved + len(skipped), "done": moved, "skipped": len(skipped) + len(self.excluded)}
        facts = numbers if self.facts is None else {**numbers, "filter": self.facts}
        return [*rows, Audit(self.actor, f"{self.action}_SUMMARY", self.reason, None, self.id, None, facts)]


def _before(state: str | None) -> Any:
    return None if isinstance(state, Withheld) else {"state": state}


# In place of a state.
UNUSABLE = "its row cannot be worked with"
FOREIGN = "it is of a feature that this process does not know; name the application that brings it (--app)"


def skip_reason(state: str | None, means: str = "failed or cancelled") -> str:
    if state is None:
        return "not found"
    if state in (UNUSABLE, FOREIGN) or isinstance(state, Withheld):
        return state
    return (
        f"it is {state}, but no longer by the failure that was meant"
        if state in means
        else f"it is {state}, not {means}"
    )


@dataclass(slots=True, frozen=True)
class AuditFilter:
    """Selects audit rows; None means any. ``kind``, ``scope`` and ``trace_id`` are those of the task acted on.
    ``since`` is the first moment, ``until`` the first that is too late. ``target``: what was acted on that is no task,
    ``batch:ID`` for instance."""

    action: str | None = None
    actor: str | None = None
    bulk_id: str | None = None
    target: str | None = None
    task_id: UUID | None = None
    task_ids: tuple[UUID, ...] | None = None  # any of these
    kind: str | None = None
    scope: str | None = None
    trace_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    older_than: datetime | None = None  # of what is past its keep: these are read by their age
