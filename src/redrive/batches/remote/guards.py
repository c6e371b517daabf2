"""What remote batches answer to others before something is done with their money, their data or their tasks, and what
``redrive ledger verify`` proves of them: their money is what the books say, and settled once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from redrive.batches.batch import PAGE, BatchConflict
from redrive.batches.names import FEATURE, SETTLED
from redrive.batches.remote.model import remote_of
from redrive.feature import Rows, Store
from redrive.kernel.feature import Members
from redrive.kernel.retry_guard import Withheld
from redrive.ledger.verify import LedgerHook, Problem, pieces

MOST_NAMED = 5


async def holds(store: Store, reference: str) -> Withheld | None:
    """Returns why money of a batch that has not ended is not settled by hand: the batch does that, and once."""
    if (name := _batch_of(reference)) is None:
        return None
    rows = await store.sql.feature_rows(FEATURE, "remote_by_id", name)
    if not rows or rows[0]["state"] in SETTLED:
        return None
    why = f"batch {name} is {rows[0]['state']}, and settles this money itself"
    if rows[0]["cancelled_at"] is not None:
        return Withheld(why, f"it does when its last jobs have ended: redrive batch items {name}")
    return Withheld(why, f"redrive batch cancel {name} gives back what was not started")


def refuse(reference: str) -> Rows | None:
    """Returns the row that lets nothing land while a batch has not ended: a retry may begin at the same moment."""
    name = _batch_of(reference)
    return None if name is None else Rows(FEATURE, "remote_unheld", ({"id": name},))


async def erasable(store: Store, scope: str) -> Withheld | None:
    """Returns why what is known about a scope cannot be erased: batches of it run, and need what they hold."""
    rows = await store.sql.feature_rows(FEATURE, "remote_of_scope", scope, MOST_NAMED + 1)
    if not rows:
        return None
    named = [str(row["id"]) for row in rows[:MOST_NAMED]]
    more = " and more" if len(rows) > MOST_NAMED else ""
    cancels = "; ".join(f"redrive batch cancel {name}" for name in named)
    return Withheld(
        f"remote batches of it have not ended: {', '.join(named)}{more}", f"wait until they are settled, or: {cancels}"
    )


def _batch_of(reference: str) -> str | None:
    """Returns the id of the batch that money is frozen for, if it is one."""
    what, _, name = reference.partition(":")
    try:
        return name if what == "batch" and str(UUID(name)) == name else None
    except ValueError:
        return None


async def check(store: Store) -> AsyncIterator[Problem]:
    """Compares each batch that is paid for with its postings and its items, and looks for postings of batches which
    there never were. A piece is one statement, so writers go on meanwhile."""
    after = str(UUID(int=0))
    while rows := await store.sql.feature_rows(FEATURE, "remote_books", after, PAGE):
        for row in rows:
            if (text := _wrong(row)) is not None:
                yield Problem("batch", str(row["id"]), text)
        after = str(rows[-1]["id"])
    async for first, last, _ in pieces(store, FEATURE, "movements_piece"):
        for row in await store.sql.feature_rows(FEATURE, "nobodys_movements", first, last, PAGE):
            yield Problem(
                "posting",
                row["posting"],
                f"moves money of {row['reference']}, and there never was such a batch, or such a round of it",
            )


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
    if (earned := row["completed"] * row["price"]) != captured:
        told = f"{row['completed']} items have succeeded, at {row['price']} each {earned}"
        return (
            f"{told}, and {captured} were charged: somebody changed its items, or its price, after they were paid for"
        )
    if row["held"] != frozen:
        told = f"{frozen} are frozen for it, and the ledger holds {row['held']}: somebody settled it by hand"
        return f"{told}; redrive ledger freeze … --for batch:{row['id']} puts it back"
    if row["state"] in SETTLED and frozen:
        return f"is {row['state']}, and {frozen} of it are still frozen"
    if row["state"] in SETTLED and row["settlements"] != row["freezes"]:
        return f"was charged {row['freezes']} times, and settled {row['settlements']} times"
    return None


hook = LedgerHook(check, holds, refuse)


async def members(store: Store, batch: UUID) -> Members | None:
    """Returns the members of a remote batch; None where there is no such batch."""
    rows = await store.sql.feature_rows(FEATURE, "remote_by_id", str(batch))
    if not rows:
        return None
    found = remote_of(rows[0])
    if found.join_id is None:
        raise BatchConflict(
            f"batch {batch} is {found.state}, and has no tasks: its items become tasks when a worker begins it",
            hint=f"redrive batch items {batch} shows its items",
        )
    return Members(found.join_id, f"redrive batch cancel {batch}, or POST /api/batches/{batch}/cancel")
