"""Remote batches whose next step nobody would take: the task of their dispatch or of their settlement was cancelled,
erased, or never made. A duty brings another, so that money is not frozen for good."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

from redrive.batches.batch import FEATURE
from redrive.batches.remote.commits import resumed
from redrive.batches.remote.model import find_remote
from redrive.errors import RedriveError
from redrive.kernel.ports.store import Store

logger = logging.getLogger("redrive.batches")
PAGE = 500


async def bring_steps(store: Store, stopping: Callable[[], bool]) -> None:
    """Brings the next step of each batch that waits for one and has no task for it. One that is failed is left to
    operators: doctor names it."""
    async for row in steps(store):
        if stopping():
            return
        if row["gone"]:
            await _bring(store, row["id"])


async def steps(store: Store) -> AsyncIterator[dict[str, Any]]:
    """Yields each batch that is not settled, with what became of the task of its next step."""
    after = str(UUID(int=0))
    while rows := await store.sql.feature_rows(FEATURE, "remote_steps", after, PAGE):
        for row in rows:
            yield row
        if len(rows) < PAGE:
            return
        after = str(rows[-1]["id"])


async def _bring(store: Store, batch: object) -> None:
    try:
        found = await find_remote(store, batch)
        if found.settled:
            return
        await store.apply(resumed(found))
    except RedriveError as error:  # somebody has moved it meanwhile, or removed it; else the next look brings it
        logger.info("batch %s was not resumed: %s", batch, error, extra={"event": "batch.not_resumed"})
        return
    logger.warning("batch %s had no task for its next step; it has one now", batch, extra={"event": "batch.resumed"})
