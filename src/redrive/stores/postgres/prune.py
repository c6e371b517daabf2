"""Removes what is past its keep, in bounded pieces, by ``functions/prune.sql``."""

from __future__ import annotations

import json

from redrive.kernel.retention import FeatureRule, Retention
from redrive.stores.features import Features
from redrive.stores.pieces import prune_features, prune_in_pieces
from redrive.stores.postgres.calls import fetch, touched
from redrive.stores.postgres.pool import Connection, Pool
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "statements.sql")
ROWS_PER_PIECE = 5000


async def prune(pool: Pool, keep: Retention, features: Features) -> int:
    """Removes what is past its keep; returns how many rows went."""

    async def piece() -> tuple[int, bool]:
        [(gone, more)] = await fetch(pool, "prune", json.dumps(keep.values()), ROWS_PER_PIECE)
        return gone, more

    removed = await prune_in_pieces(piece)
    return removed + await prune_features(keep.features, lambda rule: _of_feature(pool, rule, features))


async def _of_feature(pool: Pool, rule: FeatureRule, features: Features) -> tuple[int, bool]:
    text = features.statement(rule.feature, rule.statement)

    async def work(connection: Connection) -> int:
        before = await connection.fetchval(SQL["days_ago"], rule.days)
        return touched(await connection.execute(text, before, ROWS_PER_PIECE))

    gone = await pool.run(work)
    return gone, gone >= ROWS_PER_PIECE
