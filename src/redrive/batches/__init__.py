"""Batches: tasks of any kinds that belong together, or jobs at a provider, and what follows when all have ended.

An item is a task, the end of a batch is a join: this folder adds a name, a key, lists, and acting on all items at once.
Every application has the feature, so what it consists of is imported when it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from redrive.batches.duties import duties
from redrive.batches.kinds import declare, declare_provider, kinds
from redrive.batches.names import CALLBACK_PATH, MAX_DEATHS, RESERVED_KINDS
from redrive.batches.remote.item_task import GUARD, belongs, react
from redrive.batches.settings import BatchSettings, retention
from redrive.kernel.alerts.own import AlertRule
from redrive.kernel.approved import ApprovedAction
from redrive.kernel.feature import Belongs, Feature, Groups, Members, Need

if TYPE_CHECKING:
    from uuid import UUID

    from redrive.batches.app_batch import Batches as Batches
    from redrive.batches.app_batch import OwnBatch as OwnBatch
    from redrive.batches.batch import Batch as Batch
    from redrive.batches.batch import BatchCancelled as BatchCancelled
    from redrive.batches.batch import BatchConflict as BatchConflict
    from redrive.batches.batch import BatchUnknown as BatchUnknown
    from redrive.batches.batch_builder import NewBatch as NewBatch
    from redrive.batches.batch_service import BatchService as BatchService
    from redrive.batches.names import BatchState as BatchState
    from redrive.batches.names import ItemState as ItemState
    from redrive.kernel.approved import Asked, Land
    from redrive.kernel.diagnosis import Finding
    from redrive.kernel.ports.store import Store
    from redrive.settings import Settings

_PUBLIC = {
    "batch": ("Batch", "BatchCancelled", "BatchConflict", "BatchUnknown"),
    "names": ("BatchState", "ItemState"),
    "app_batch": ("Batches", "OwnBatch"),
    "batch_builder": ("NewBatch",),
    "batch_service": ("BatchService",),
}


async def examine(store: Store, settings: Settings) -> Sequence[Finding]:
    """Returns what is wrong with batches, for doctor."""
    from redrive.batches import doctor

    return await doctor.examine(store, settings)


async def members(store: Store, batch: UUID) -> Members | None:
    """Returns the tasks of a remote batch; one of tasks has the id of its join."""
    from redrive.batches.remote.guards import members as of_remote

    return await of_remote(store, batch)


def _approved(action: str) -> ApprovedAction:
    """Returns what is done to a remote batch when a second operator has agreed to it."""

    async def carry_out(session: Any, asked: Asked, land: Land) -> None:
        from redrive.batches.remote.actions import RemoteBatchActions

        await RemoteBatchActions(session).carry_out(action, asked, land)

    return ApprovedAction(action, carry_out)


ALERTS = (
    AlertRule(
        "batches_forgotten",
        "batches that are open, and that nobody adds to any more",
        hold=300,
        fix="redrive doctor names them; redrive batch cancel ID, or wait until they are cancelled by themselves",
    ),
    AlertRule(
        "batches_stuck",
        "remote batches that nothing moves any more",
        hold=300,
        fix="redrive doctor names them, and what to do with each",
    ),
)

BATCHES = Feature(
    "batches",
    __name__,
    command="batch",
    about="Work that belongs together: create, list, show, watch, items, cancel, retry what failed.",
    duties=duties,
    react=react,
    kinds=kinds,
    declare=declare,
    provider=declare_provider,
    services={
        "batch": "redrive.batches.app_batch:Batches",
        "remote_batches": "redrive.batches.remote.application:RemoteBatches",
    },
    routes="redrive.batches.routes:routers",
    public=(f"/{CALLBACK_PATH}/",),
    streams=("/api/batches",),
    commands="redrive.batches.commands:cli",
    pages="redrive.batches.pages:pages",
    settings=BatchSettings,
    retention=retention,
    examine=examine,
    alerts=ALERTS,
    groups=Groups(members, lambda join: Belongs(f"batch {join}", f"/batches/{join}", "batches"), "redrive batch list"),
    metrics="redrive.batches.metrics:metrics",
    belongs=belongs,
    retry_guard=GUARD,
    reserved_kinds=RESERVED_KINDS,
    max_deaths=MAX_DEATHS,
    approved=(_approved("cancel"), _approved("retry_failed"), _approved("charge")),
    hooks={
        "ledger": "redrive.batches.remote.guards:hook",
        "erase": "redrive.batches.remote.guards:erasable",
    },
    needs=(Need.JOINS, Need.LEDGER),
)


def __getattr__(name: str) -> Any:
    for module, names in _PUBLIC.items():
        if name in names:
            return getattr(import_module(f"redrive.batches.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
