"""Rebuilds and comparisons that are under way: finds them, and drives them for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from redrive.kernel.operation import COLLECTION, Status
from redrive.outbox.index_job import REBUILD, VERIFY, job_of
from redrive.outbox.operation_driver import Driver, drive
from redrive.outbox.rebuild.steps import Rebuild
from redrive.outbox.verify.steps import Verify

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.kernel.records import Record
    from redrive.outbox.projection import Projection
    from redrive.outbox.settings import OutboxSettings


async def drive_all(
    store: Store, projection: Projection, settings: OutboxSettings, worker: str, stopping: Callable[[], bool]
) -> None:
    """Goes on with what is under way for a projection, for a while."""
    driver = Driver(store, projection, settings, worker, stopping)
    await asyncio.gather(drive(driver, Rebuild(driver).step), drive(driver, Verify(driver).step))


async def under_way(store: Store, projection: str) -> dict[str, Record | None]:
    """Returns the operations that rebuild and compare a projection now."""
    found: dict[str, Record | None] = {}
    for kind in (REBUILD, VERIFY):
        job = await job_of(store, kind, projection)
        found[kind] = None if job.operation is None else await store.record(COLLECTION, job.operation)
    return found


async def moving(store: Store, projection: str) -> tuple[tuple[str, int], ...]:
    """Returns what can move this moment, by id and version: who has tried, and finds the same again, has moved none."""
    found = list[tuple[str, int]]()
    for kind in (REBUILD, VERIFY):
        job = await job_of(store, kind, projection)
        record = None if job.operation is None else await store.record(COLLECTION, job.operation)
        if record is not None and record.state != Status.PAUSED:
            found.append((record.id, record.version + job.version))
    return tuple(found)
