"""Tasks that a reaction could not add, since their keys name other work: for doctor."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from redrive.kernel.audit import AuditFilter
from redrive.kernel.diagnosis import Finding, Level
from redrive.kernel.ports.store import Store
from redrive.kernel.reactions import REACTION_CONFLICT
from redrive.kernel.task import AuditRow
from redrive.kernel.wording import counted, span

TOLD_FOR = timedelta(days=3)  # nobody can say that it was seen to, so it ends by itself
MOST_READ, MOST_TOLD = 500, 5


async def findings(store: Store, now: datetime) -> list[Finding]:
    """Returns a finding for each kind of which a reaction could not add a task lately, the last one first."""
    rows = await store.audit(AuditFilter(action=REACTION_CONFLICT, since=now - TOLD_FOR), limit=MOST_READ)
    kinds: dict[tuple[str, str], list[AuditRow]] = {}
    for row in rows:
        if not isinstance(row.after, Mapping):  # it was erased together with a person's tasks
            continue
        kinds.setdefault((row.after["who"], row.after["kind"]), []).append(row)
    return [_finding(who, kind, found, now) for (who, kind), found in list(kinds.items())[:MOST_TOLD]]


def _finding(who: str, kind: str, rows: list[AuditRow], now: datetime) -> Finding:
    last, number = rows[0], sum(row.after["tasks"] for row in rows)
    often = f"{counted(number, 'time')} within {span(TOLD_FOR)}, last {span(now - last.at)} ago"
    text = f"{who} could not add a task {kind}, {often}: its idempotency key names other work, task {last.task_id}"
    fix = (
        f"redrive show {last.task_id} says what has the key; enqueue that under another one. What was to follow was not"
        f" made: redrive audit --action {REACTION_CONFLICT} names all"
    )
    return Finding(Level.WARNING, "reaction_key_conflict", text, fix, ("page", f"/tasks/{last.task_id}"))
