"""Removes what is past its keep, in bounded pieces, by ``functions/prune.sql``."""

from __future__ import annotations

import json

from redrive.kernel.retention import Retention
from redrive.stores.pieces import prune_in_pieces
from redrive.stores.postgres.calls import fetch
from redrive.stores.postgres.pool import Pool

ROWS_PER_PIECE = 5000


async def prune(pool: Pool, keep: Retention) -> int:
    """Removes what is past its keep; returns how many rows went."""

    async def piece() -> tuple[int, bool]:
        [(gone, more)] = await fetch(pool, "prune", json.dumps(keep.values()), ROWS_PER_PIECE)
        return gone, more

    return await prune_in_pieces(piece)
