"""Erases personal data: see ``redrive.kernel.erase``."""

from __future__ import annotations

import json

from redrive.kernel.erase import Erase, place_of, subject_of
from redrive.stores.features import Features
from redrive.stores.postgres.calls import touched
from redrive.stores.postgres.pool import Connection
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "statements.sql")


async def erase_callbacks(connection: Connection, wanted: Erase | None) -> int:
    """Removes what joins would enqueue about a scope; returns how many. Called before anything is moved: a task that is
    given up may be the last that they wait for."""
    if wanted is None or wanted.callbacks is None:
        return 0
    return int(await connection.fetchval(SQL["erase_callbacks"], wanted.callbacks))


async def erase(connection: Connection, wanted: Erase, features: Features) -> dict[str, int]:
    """Erases in the caller's transaction; returns how many, by place."""
    numbers, digests = list(wanted.audit), list(wanted.audit.values())
    done = await connection.fetchval(
        SQL["erase"],
        list(wanted.task_ids),
        wanted.tombstone,
        numbers,
        digests,
        wanted.scope,
        json.dumps(wanted.holds),
        list(wanted.telling),
    )
    places = json.loads(done)
    if wanted.scope is not None:
        places["reasons"] = await connection.fetchval(SQL["erase_reasons"], wanted.scope)
    if features.erasing and wanted.about_somebody:
        ids = [row["id"] for row in await connection.fetch(SQL["not_live"], list(wanted.task_ids))]
        subject = subject_of(wanted.scope, ids, wanted.tombstone, wanted.rows)
        for name, texts in features.erasing.items():
            places[place_of(name)] = sum([touched(await connection.execute(text, subject)) for text in texts])
    return {place: n for place, n in places.items() if n}
