"""Before the first claim: tell the store what this application limits and schedules."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from redrive.errors import StoreUnavailable
from redrive.handlers.registry import Registry
from redrive.kernel.commit import Commit, Control, Declare, Limit
from redrive.settings import Settings

if TYPE_CHECKING:
    from redrive.worker.worker import Worker


async def prepare(worker: Worker) -> None:
    """Waits for the store if it has to: a worker started before its database is not a mistake."""
    controls: list[Control] = [*limits(worker.registry, worker.settings), Declare(worker.owner, worker.schedules)]
    while not worker.stopping:
        try:
            await worker.store.open()
            await worker.store.apply(Commit(controls=controls))
            worker.outage.over()
            return
        except StoreUnavailable as error:
            if worker.options.stop_when_empty:
                raise
            await asyncio.sleep(worker.outage.begin(error))


def limits(registry: Registry, settings: Settings) -> list[Limit]:
    """Environment maps first, then the handler's own words, then the defaults; 0 means unlimited."""
    found = []
    for kind in sorted({*registry.handlers, *settings.kind_concurrency, *settings.kind_rate_limit_ms}):
        handler = registry.handlers.get(kind)
        own = (handler.concurrency, handler.rate_ms) if handler else (None, None)
        system = kind.startswith("SYSTEM_")
        concurrency = _first(
            settings.kind_concurrency.get(kind), own[0], None if system else settings.default_kind_concurrency
        )
        rate = _first(
            settings.kind_rate_limit_ms.get(kind), own[1], None if system else settings.default_kind_rate_limit_ms
        )
        # A bulk kind has a lane of its own, so that a call can be filled up from it.
        if concurrency or rate or (handler is not None and handler.bulk):
            found.append(Limit(kind, concurrency or None, rate or None))
    return found


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
