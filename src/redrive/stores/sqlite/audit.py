"""Writes audit rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redrive.kernel.audit import Audit
from redrive.stores.sql import statements
from redrive.stores.sqlite.session import Session, dumps

SQL = statements("redrive.stores.sqlite", "settle.sql")


def add_audits(session: Session, rows: Sequence[list[Any]]) -> None:
    """Adds rows of: actor, action, reason, task id, bulk id, target, before, after (these two as JSON text),
    and the scope, if they have one of their own."""
    if rows:
        session.run(SQL["audit"], session.now, dumps(rows))


def values(audit: Audit) -> list[Any]:
    task_id = None if audit.task_id is None else str(audit.task_id)
    return [
        audit.actor,
        audit.action,
        audit.reason,
        task_id,
        audit.bulk_id,
        audit.target,
        _json(audit.before),
        _json(audit.after),
        audit.scope,
    ]


def _json(value: object) -> str | None:
    return None if value is None else dumps(value)
