"""Lists the duties of every worker, whatever its application."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from redrive.errors import ConfigError
from redrive.kernel.duty import Duty
from redrive.kernel.machine import Policy
from redrive.kernel.retention import Retention
from redrive.worker.config import WorkerConfig
from redrive.worker.maintenance.cron import fire_schedules
from redrive.worker.maintenance.recover import Recovery
from redrive.worker.maintenance.upkeep import Upkeep
from redrive.worker.report import Report
from redrive.worker.time_limits import TimeLimits


def by_name(duties: Iterable[Duty]) -> dict[str, Duty]:
    found: dict[str, Duty] = {}
    for duty in duties:
        if duty.name in found:
            raise ConfigError(f"two duties are named {duty.name!r}", hint="rename the feature's own")
        found[duty.name] = duty
    return found


def standard_duties(
    config: WorkerConfig, retention: Retention | None, report: Report, features: Iterable[str]
) -> list[Duty]:
    """Returns the duties for recovery, schedules and the store's housekeeping. ``features``: those whose tasks this
    worker can end."""
    settings = config.settings
    retention = retention or Retention(settings.history_days, settings.key_days)
    every, limits = settings.recovery_interval, TimeLimits(config)

    def policy(kind: str) -> Policy:
        deaths = config.registry.max_deaths_of(kind, settings.max_worker_deaths)
        return Policy(backoff=settings.backoff, max_deaths=deaths)

    def recover(feature: str | None = None) -> Recovery:
        return Recovery(settings.recovery_batch_size, report, limits, policy, feature, config.registry.told_reclaimed)

    return [
        Duty("recover", every, recover().run, by_time=True),
        # Whoever has the duty of recovering may not know a feature: somebody who does looks after its tasks.
        *(Duty(f"recover:{name}", every, recover(name).run, by_time=True) for name in features),
        Duty("cron", None, partial(fire_schedules, tracing=config.tracing), by_time=True),
        Duty("fold", 1.0, Upkeep("fold", retention).run),
        Duty("promote", 10.0, Upkeep("promote", retention).run),
        # Twice a minute, so that there is a look at every minute.
        Duty("series", 30.0, Upkeep("series", retention).run),
        # Retention is never silent, and a corrected counter is worth knowing about.
        Duty("recount", 30.0, Upkeep("recount", retention, logging.WARNING).run),
        Duty("names", 60.0, Upkeep("names", retention).run),
        Duty("prune", 60.0, Upkeep("prune", retention, logging.INFO).run),
        Duty("partitions", 3600.0, Upkeep("partitions", retention).run),
    ]
