"""Writes audit rows."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.kernel.audit import Audit
from redrive.kernel.task import AuditRow
from redrive.stores.postgres import codec
from redrive.stores.postgres.pool import Connection
from redrive.stores.rows import audit as as_audit
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "statements.sql")


async def add_audits(connection: Connection, audits: Sequence[Audit]) -> None:
    await connection.execute(SQL["audit"], codec.audits(audits))


async def add_conclusion(connection: Connection, audits: Sequence[Audit]) -> list[AuditRow]:
    """Adds rows that sum up what was done before them; returns them as they are kept."""
    added = [row["id"] for row in await connection.fetch(SQL["audit"], codec.audits(audits))]
    return [as_audit(row) for row in await connection.fetch(SQL["audit_rows"], added)]
