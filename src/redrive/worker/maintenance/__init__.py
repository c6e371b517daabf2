"""Duties that the fleet shares: each is done by one worker per interval, whoever ticks first."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from redrive.errors import RedriveError, StoreUnavailable, StoreUnusable
from redrive.settings import Settings
from redrive.worker.maintenance.cron import fire_schedules
from redrive.worker.maintenance.recover import recover
from redrive.worker.maintenance.upkeep import upkeep

if TYPE_CHECKING:
    from redrive.worker.worker import Worker

logger = logging.getLogger("redrive.maintenance")


def DUTIES(settings: Settings) -> dict[str, float]:
    """Name and interval in seconds. ``cron`` is not listed: the store hands it out when a schedule is due."""
    return {"recover": settings.recovery_interval, "fold": 1.0, "promote": 10.0, "recount": 30.0, "prune": 60.0,
            "partitions": 3600.0}  # fmt: skip


async def perform(worker: Worker, duty: str) -> None:
    """Do one duty. A duty that fails is done by the next one to tick; it never stops the worker."""
    try:
        match duty:
            case "recover":
                await recover(worker)
            case "cron":
                await fire_schedules(worker)
            case _ if duty in worker.errands:
                await worker.errands[duty].run(worker.store, worker.id, lambda: worker.stopping)
            case _ if duty.startswith("recover:"):  # of one feature, by a worker that knows it
                await recover(worker)
            case _:
                await upkeep(worker, duty)
    except (StoreUnavailable, StoreUnusable):
        pass  # the beat meets the same trouble, and says so
    except RedriveError as error:
        logger.error("%s failed: %s", duty, error, extra={"event": "maintenance.failed", "duty": duty})
    except Exception:
        logger.exception("%s failed", duty, extra={"event": "maintenance.failed", "duty": duty})
