"""What a worker does before its first claim: imports what its handlers need, and tells the store what the application
limits and schedules.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module

from redrive.errors import ChangedMeanwhile, StoreUnavailable
from redrive.handlers.cron import next_after
from redrive.handlers.registry import Isolation, Registry
from redrive.kernel.circuit import declare
from redrive.kernel.commit import Commit, Control, Declare, Limit
from redrive.kernel.ports.store import Overview, Store
from redrive.settings import Settings
from redrive.worker.outage import Outage
from redrive.worker.state import Lifecycle

logger = logging.getLogger("redrive.worker")
READS_PAYLOADS = "redrive.handlers.typed"  # it imports Pydantic


async def preload(registry: Registry, queues: Collection[str]) -> None:
    """Imports what the kinds of these queues name, in a thread: the loop may be that of a whole application."""
    missing = [name for name in named(registry, queues) if name not in sys.modules]
    if missing:
        await asyncio.to_thread(import_all, missing)


def named(registry: Registry, queues: Collection[str]) -> list[str]:
    """Returns what reads the payloads of these queues, and the modules that their kinds name. Handlers with a process
    of their own import those there; payloads are read here."""
    ours = [one for one in registry.handlers.values() if one.queue in queues]
    imported = [name for one in ours if one.isolation is not Isolation.PROCESS for name in one.preload]
    return list(dict.fromkeys([*([READS_PAYLOADS] if ours else []), *imported]))


def import_all(names: Iterable[str]) -> None:
    """Imports modules. One that cannot be imported is left to the handler, whose task then says what is missing."""
    for name in names:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            logger.debug("%s is not preloaded: there is no %s", name, error.name)
        except Exception:
            logger.warning("%s cannot be imported", name, extra={"event": "worker.preload_failed"}, exc_info=True)


MOST_TRIES = 5
UNNAMED_APP = "default"  # the name of every App that was given none


@dataclass(slots=True, frozen=True)
class Preparation:
    """What an application declares to the store: its limits, and its schedules under the name of their owner."""

    store: Store
    registry: Registry
    settings: Settings
    declared: Declare
    queues: Sequence[str] = ()  # that this worker serves

    async def run(self) -> None:
        """Opens the store, and declares everything at once."""
        for text in unhandled_limits(self.registry, self.settings):
            logger.warning("%s", text, extra={"event": "limit.unhandled"})
        await self.store.open()
        overview = await self.store.overview()
        names = self.registry.names(queues=self.queues, most=self.settings.max_names)
        controls: list[Control] = [*self._limits(overview), *await self._schedules(), names]
        await self.store.apply(Commit(controls=controls))
        await self._circuits(overview)

    async def _circuits(self, overview: Overview) -> None:
        """Says which kinds have which circuit. Others that start at the same time may do so too: those that lose look
        again."""
        handlers = self.registry.handlers.items()
        kinds = {kind: None if one.circuit is None else one.circuit.name for kind, one in handlers}
        rows = overview.circuits
        for _ in range(MOST_TRIES):
            changes = declare(rows, kinds)
            if not changes:
                return
            try:
                await self.store.apply(Commit(controls=changes))
                return
            except ChangedMeanwhile:
                rows = await self.store.circuits()

    async def _schedules(self) -> list[Declare]:
        """Returns the schedules with their first runs, planned from the store's clock; a schedule that the store knows
        keeps the run planned there.

        An application that has none any more takes back its last ones, but only under a name of its own: whatever
        else shares the name "default" (a worker without an application, a second script) has schedules to lose.
        """
        owner, schedules = self.declared.owner, self.declared.schedules
        if not schedules:
            return [] if owner == UNNAMED_APP else [self.declared]
        now, _ = await self.store.due_schedules()
        planned = tuple(replace(s, next_at=next_after(s.cron, s.timezone, now)) for s in schedules)
        return [Declare(owner, planned)]

    def _limits(self, overview: Overview) -> list[Limit]:
        """Returns what configuration limits now, and the end of what it limited before. An operator's limit stays."""
        settings, wanted = self.settings, limits(self.registry, self.settings)
        ours = {*self.registry.handlers, *settings.kind_concurrency, *settings.kind_rate_limit_ms}
        free = ours - {limit.kind for limit in wanted}
        lifted = [
            row
            for row in overview.limits
            if row.kind in free and row.actor is None and (row.concurrency or row.rate_ms)
        ]
        return [*wanted, *(Limit(row.kind) for row in lifted)]


async def prepare(preparation: Preparation, lifecycle: Lifecycle, outage: Outage, *, wait: bool) -> None:
    """Prepares the store, and with ``wait`` waits for it: a worker started before its database is not a mistake."""
    while not lifecycle.stopping:
        try:
            await preparation.run()
            outage.over()
            lifecycle.begin()
            return
        except StoreUnavailable as error:
            if not wait:
                raise
            lifecycle.begin()
            await outage.wait(outage.begin(error))


def unhandled_limits(registry: Registry, settings: Settings) -> list[str]:
    """Returns what to say about limits of the settings for kinds that are not known here: perhaps another
    application's, perhaps misspelt, and then the limit holds for nothing."""
    found = []
    maps = {
        "TASK_WORKER_KIND_CONCURRENCY": settings.kind_concurrency,
        "TASK_WORKER_KIND_RATE_LIMIT_MS": settings.kind_rate_limit_ms,
    }
    for name, limited in maps.items():
        for kind in sorted(kind for kind in limited if registry.known(kind) is None):
            close = difflib.get_close_matches(kind, [*registry.handlers, *registry.declared], 1)
            guess = f"did you mean {close[0]}?" if close else "is it another application's?"
            found.append(f"{name} limits {kind}, which no handler here has: {guess}")
    return found


def limits(registry: Registry, settings: Settings) -> list[Limit]:
    """Returns the limits of a kind: environment maps first, then what its handler declares, then the defaults; 0 means
    unlimited."""
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
