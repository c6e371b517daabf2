"""Retention: what is past its keep goes, in bounded pieces, by ``functions/prune.sql``."""

from __future__ import annotations

import json

from redrive.kernel.retention import Retention
from redrive.stores.pieces import prune_in_pieces
from redrive.stores.postgres.calls import fetch
from redrive.stores.postgres.pool import Pool

LIMIT = 5000


async def prune(pool: Pool, keep: Retention) -> int:
    """Returns how many rows went."""

    async def piece() -> tuple[int, bool]:
        [(gone, more)] = await fetch(pool, "prune", json.dumps(keep.values()), LIMIT)
        return gone, more

    return await prune_in_pieces(piece)
