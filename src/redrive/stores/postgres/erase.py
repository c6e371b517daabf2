"""Erases personal data: see ``redrive.kernel.erase``."""

from __future__ import annotations

import json

from redrive.kernel.erase import Erase
from redrive.stores.postgres.pool import Connection
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "statements.sql")


async def erase(connection: Connection, wanted: Erase) -> dict[str, int]:
    """Erases in the caller's transaction; returns how many, by place."""
    numbers, digests = list(wanted.audit), list(wanted.audit.values())
    done = await connection.fetchval(
        SQL["erase"],
        list(wanted.task_ids),
        wanted.tombstone,
        numbers,
        digests,
        wanted.scope,
        json.dumps(wanted.holds),
        list(wanted.telling),
    )
    return {place: n for place, n in json.loads(done).items() if n}
