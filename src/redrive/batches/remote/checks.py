"""What ``redrive ledger verify`` proves of remote batches: their money is what the books say, and settled once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from redrive.batches.batch import FEATURE
from redrive.batches.remote.model import SETTLED
from redrive.feature import Store
from redrive.ledger.verify import Problem

PIECE = 500


async def check(store: Store) -> AsyncIterator[Problem]:
    """Compares each batch that is paid for with its postings. A piece is one statement, so writers go on meanwhile."""
    after = str(UUID(int=0))
    while rows := await store.feature_rows(FEATURE, "remote_books", after, PIECE):
        for row in rows:
            if (text := _wrong(row)) is not None:
                yield Problem("batch", str(row["id"]), text)
        after = str(rows[-1]["id"])


def _wrong(row: dict[str, Any]) -> str | None:
    captured, released = int(row["books_captured"]), int(row["books_released"])
    frozen = int(row["books_frozen"]) - captured - released
    for what, own, books in (
        ("captured", row["captured"], captured),
        ("released", row["released"], released),
        ("frozen", row["frozen"], frozen),
    ):
        if own != books:
            return f"{own} are {what}, and {books} by the books"
    if row["state"] in SETTLED and frozen:
        return f"is {row['state']}, and {frozen} of it are still frozen"
    if row["state"] in SETTLED and row["settlements"] != row["freezes"]:
        return f"was charged {row['freezes']} times, and settled {row['settlements']} times"
    return None
