"""Posts movements of money."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.kernel.ledger import Posting
from redrive.stores.postgres import codec
from redrive.stores.postgres.pool import Connection
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "statements.sql")


async def post(connection: Connection, postings: Sequence[Posting]) -> set[str]:
    """Posts movements of money, each at most once; returns the keys that were posted before."""
    return set(await connection.fetchval(SQL["post"], codec.postings(postings))) if postings else set()
