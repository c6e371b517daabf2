"""Performs the duties that the fleet shares: each is done by one worker per interval, whoever ticks first."""

from __future__ import annotations

import logging
from collections.abc import Callable

from redrive.errors import RedriveError, StoreUnavailable, StoreUnusable
from redrive.kernel.duty import Duty
from redrive.kernel.ports.store import Store

logger = logging.getLogger("redrive.maintenance")


async def perform(duty: Duty, store: Store, worker_id: str, stopping: Callable[[], bool]) -> None:
    """Performs one duty. One that fails is done by the next worker to tick; it never stops this one."""
    name = duty.name
    try:
        await duty.run(store, worker_id, stopping)
    except (StoreUnavailable, StoreUnusable):
        pass  # the beat meets the same trouble, and says so
    except RedriveError as error:
        logger.error("%s failed: %s", name, error, extra={"event": "maintenance.failed", "duty": name})
    except Exception:
        logger.exception("%s failed", name, extra={"event": "maintenance.failed", "duty": name})
