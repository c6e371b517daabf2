"""Imports what handlers will need before the first claim. Their first task would import it on the event loop, and hold
up heartbeats, leases and every other handler for as long."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Collection, Iterable
from importlib import import_module

from redrive.handlers.registry import Isolation, Registry

logger = logging.getLogger("redrive.worker")


async def preload(registry: Registry, queues: Collection[str]) -> None:
    """Imports what the kinds of these queues name, in a thread: the loop may be that of a whole application."""
    missing = [name for name in named(registry, queues) if name not in sys.modules]
    if missing:
        await asyncio.to_thread(import_all, missing)


def named(registry: Registry, queues: Collection[str]) -> list[str]:
    """Returns the modules that kinds of these queues name, or need for their payloads. Handlers with a process of their
    own import there."""
    handlers = registry.handlers.values()
    ours = [one for one in handlers if one.queue in queues and one.isolation is not Isolation.PROCESS]
    return list(dict.fromkeys(name for one in ours for name in (*one.payload.preload, *one.preload)))


def import_all(names: Iterable[str]) -> None:
    """Imports modules. One that cannot be imported is left to the handler, whose task then says what is missing."""
    for name in names:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            logger.debug("%s is not preloaded: there is no %s", name, error.name)
        except Exception:
            logger.warning("%s cannot be imported", name, extra={"event": "worker.preload_failed"}, exc_info=True)
