"""Posts movements of money."""

from __future__ import annotations

from redrive.kernel.ledger import Posting
from redrive.stores.postgres.pool import Connection
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "statements.sql")


async def post(connection: Connection, posting: Posting) -> bool:
    """Posts one movement of money; False when the key was posted before."""
    accounts, amounts = zip(*posting.entries, strict=True)
    return bool(await connection.fetchval(SQL["post"], posting.key, list(accounts), list(amounts), posting.note))
