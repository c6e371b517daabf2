"""What is kept of tasks that a reaction could not add, since their keys name other work: a row of the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from redrive.kernel.audit import Audit

REACTION_CONFLICT = "REACTION_KEY_CONFLICT"


def conflict_row(who: str, kind: str, taken: Sequence[UUID]) -> Audit:
    """Returns the row: ``who`` wanted to add tasks of a kind, and these have their keys."""
    why = f"{who} wanted to add a task {kind}, and its idempotency key names other work: it was not made"
    return Audit("redrive", REACTION_CONFLICT, why, taken[0], after={"who": who, "kind": kind, "tasks": len(taken)})
