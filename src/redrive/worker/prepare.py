"""Before the first claim: tell the store what this application limits and schedules."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from redrive.errors import StoreUnavailable
from redrive.handlers.cron import next_after
from redrive.handlers.registry import Registry
from redrive.kernel.commit import Commit, Control, Declare, Limit
from redrive.settings import Settings

if TYPE_CHECKING:
    from redrive.worker.worker import Worker

NOBODY = "default"  # the name of every App that was given none


async def prepare(worker: Worker) -> None:
    """Waits for the store if it has to: a worker started before its database is not a mistake."""
    while not worker.stopping:
        try:
            await worker.store.open()
            controls: list[Control] = [*await _limits(worker), *await _schedules(worker)]
            if controls:
                await worker.store.apply(Commit(controls=controls))
            worker.outage.over()
            worker.begun.set()
            return
        except StoreUnavailable as error:
            if worker.options.stop_when_empty:
                raise
            worker.begun.set()
            await asyncio.sleep(worker.outage.begin(error))


async def _schedules(worker: Worker) -> list[Declare]:
    """First runs are planned from the store's clock; a schedule that the store knows keeps the run planned there.

    An application that has none any more takes back its last ones, but only under a name of its own: whatever else
    shares the name "default" (a worker without an application, a second script) has schedules to lose.
    """
    if not worker.schedules:
        return [] if worker.owner == NOBODY else [Declare(worker.owner, ())]
    now, _ = await worker.store.due_schedules()
    planned = tuple(replace(s, next_at=next_after(s.cron, s.timezone, now)) for s in worker.schedules)
    return [Declare(worker.owner, planned)]


async def _limits(worker: Worker) -> list[Limit]:
    """What configuration limits now, and the end of what it limited before. An operator's limit stays."""
    wanted = limits(worker.registry, worker.settings)
    settings = worker.settings
    ours = {*worker.registry.handlers, *settings.kind_concurrency, *settings.kind_rate_limit_ms}
    unlimited = ours - {limit.kind for limit in wanted}
    rows = (await worker.store.overview()).limits
    lifted = [row for row in rows if row.kind in unlimited and row.actor is None and (row.concurrency or row.rate_ms)]
    return [*wanted, *(Limit(row.kind) for row in lifted)]


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
