"""Does long work in pieces, so that nobody waits for the whole of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from redrive.errors import StoreUnavailable
from redrive.kernel.retention import FeatureRule

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


async def prune_features(
    rules: Iterable[FeatureRule], piece: Callable[[FeatureRule], Awaitable[tuple[int, bool]]]
) -> int:
    """Removes rows of features in pieces; returns how many went. A statement that is refused keeps nobody else's rows
    from going, and is raised at the end."""
    removed, failed = 0, None
    for rule in rules:
        try:
            removed += await prune_in_pieces(partial(piece, rule))
        except StoreUnavailable:
            raise
        except Exception as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return removed
