"""Does long work in pieces, so that nobody waits for the whole of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

MOST_PIECES_PER_PRUNE = 20


async def prune_in_pieces(piece: Callable[[], Awaitable[tuple[int, bool]]]) -> int:
    """Calls for piece after piece, each a transaction of its own; returns how many rows went. A piece returns how many,
    and if there may be more: what has to be kept is looked at, too, and must not end the round."""
    removed = 0
    for _ in range(MOST_PIECES_PER_PRUNE):
        gone, more = await piece()
        removed += gone
        if not more:
            break
    return removed
