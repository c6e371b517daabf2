"""Reads pages in pieces, with a budget of bytes: what tasks carry does not decide what a page costs.

The rows of a page come a few at a time. Once their documents add up to the budget, the rest come without: a page is as
long as it was asked to be, and says what it left out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

from redrive.kernel.payload import CUT

T = TypeVar("T")
ROWS_PER_PIECE = 50
PAGE_BUDGET_CHARS = 4 * 1024 * 1024
LONGEST_IN_A_LIST, LONGEST_ALONE = 16_384, 65_536  # bytes of a document that comes along, in a list and of one thing
_DOCUMENTS = ("payload", "result", "progress", "error_message", "error_stack", "before", "after")

# How many rows, how long their documents may be, and after which row (None: from the beginning).
Fetch = Callable[[int, int, Any], Awaitable[Sequence[T]]]


class GetMany(Protocol[T]):
    async def __call__(self, ids: Sequence[UUID], /, *, documents: int | None = None) -> dict[UUID, T]: ...


async def in_pieces(limit: int, fetch: Fetch[T]) -> list[T]:
    """Returns up to ``limit`` rows, fetched piece by piece."""
    found: list[T] = []
    left = PAGE_BUDGET_CHARS
    while len(found) < limit:
        wanted = min(ROWS_PER_PIECE, limit - len(found))
        piece = await fetch(wanted, LONGEST_IN_A_LIST if left > 0 else 0, found[-1] if found else None)
        found += piece
        left -= sum(map(weight, piece))
        if len(piece) < wanted:
            break
    return found


async def by_ids(get_many: GetMany[T], ids: Sequence[UUID], paged: bool) -> list[T]:
    """Returns those of these tasks that exist, piece by piece if ``paged``."""
    if not paged:
        return list((await get_many(ids)).values()) if ids else []
    found: list[T] = []
    left = PAGE_BUDGET_CHARS
    for begin in range(0, len(ids), ROWS_PER_PIECE):
        piece = await get_many(ids[begin : begin + ROWS_PER_PIECE], documents=LONGEST_IN_A_LIST if left > 0 else 0)
        found += piece.values()
        left -= sum(map(weight, piece.values()))
    return found


def weight(row: Any) -> int:
    """Returns the number of characters that a row carries."""
    texts = (getattr(row, name, None) for name in _DOCUMENTS)
    return sum(len(text) for text in texts if text is not None and text is not CUT)
