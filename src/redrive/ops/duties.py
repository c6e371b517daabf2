"""The duties that operating needs of the fleet: operations, approvals, seals, retention, figures."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

from redrive.kernel.duty import Duty
from redrive.kernel.feature import Feature
from redrive.kernel.operation import COLLECTION, Status
from redrive.kernel.ports.store import Store
from redrive.ops import approvals, audit, audit_chain, growth, retention
from redrive.ops.alerts.evaluate import EVERY_S, Evaluator
from redrive.ops.alerts.messages import Place, Wording, start_command
from redrive.ops.alerts.own_rules import ASKED_EVERY, more_rules
from redrive.ops.alerts.send import destinations
from redrive.ops.audit_archive import archive_at
from redrive.ops.operations import drive as operations
from redrive.settings import Settings

Stopping = Callable[[], bool]
SEAL_EVERY_S = 30.0  # rows are a minute old before they are sealed, and most wait for five


def duties_of(
    settings: Settings,
    store: str = "",
    connection: str | None = None,
    features: Sequence[Feature] = (),
    app: str | None = None,
) -> list[Duty]:
    """Returns the duties that the settings ask for. ``store``: how the store is called in messages, ``connection``: by
    which name it is known, if not the default one, ``features``: whose rules are evaluated as well, ``app``: how
    commands name the application."""
    found = [
        Duty(
            "operations",
            operations.DRIVE_EVERY_S,
            operations.drive,
            operations.has_work,
            while_record=(COLLECTION, Status.RUNNING.value),
        ),
        Duty("approvals", 60.0, _expire_approvals),
        Duty("seal", SEAL_EVERY_S, _seal_audit),
        Duty("vitals", growth.SAMPLE_EVERY_S, _measure),
    ]
    found.append(alerts_duty(settings, store, connection or settings.default_connection, features, app))
    if settings.failed_days > 0:
        found.append(_give_up(settings))
    if settings.audit_ttl_days > 0:
        found.append(_prune_audit(settings))
    return found


async def _expire_approvals(store: Store, worker: str, stopping: Stopping) -> None:
    await approvals.expire(store)


async def _seal_audit(store: Store, worker: str, stopping: Stopping) -> None:
    await audit_chain.seal(store, stopping)


async def _measure(store: Store, worker: str, stopping: Stopping) -> None:
    await growth.write_sample(store)


def alerts_duty(
    settings: Settings,
    store: str,
    connection: str,
    features: Sequence[Feature] = (),
    app: str | None = None,
    asked_every: timedelta = ASKED_EVERY,
) -> Duty:
    """Returns the duty that evaluates alerts; the arguments are those of ``duties_of`` and of ``Evaluator``."""
    several = connection if len(settings.connections) > 1 else None
    place = Place(store, socket.gethostname(), settings.env, several)
    wording = Wording(settings.alert_runbooks, place, settings.triage)
    own = more_rules(settings, features, connection)
    to = destinations(settings, wording)
    # One address, one evaluator: with two, the one would hide that the other is gone.
    heartbeat = settings.alert_heartbeat if connection == settings.default_connection else None
    starts = partial(start_command, settings, connection, app=settings.app or app or "module:app")
    evaluator = Evaluator(settings.alerts.limits, to, heartbeat, own, settings.slo, starts, asked_every)
    return Duty("alerts", EVERY_S, evaluator.run)


def _give_up(settings: Settings) -> Duty:
    async def run(store: Store, worker: str, stopping: Stopping) -> None:
        await retention.give_up_failed(store, settings.failed_days, stopping)

    return Duty("failed", retention.GIVE_UP_EVERY_S, run)


def _prune_audit(settings: Settings) -> Duty:
    archive = archive_at(settings.audit_archive)

    async def run(store: Store, worker: str, stopping: Stopping) -> None:
        await audit.retain(store, settings.audit_ttl_days, settings.audit_prune_batch_size, stopping, archive)

    return Duty("audit", settings.audit_prune_interval_ms / 1000, run)
