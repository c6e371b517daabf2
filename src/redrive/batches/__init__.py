"""Batches: tasks of any kinds that belong together, and what follows when all of them have ended.

An item is a task, the end of a batch is a join: this folder adds a name, a key, lists, and acting on all items at once.
Every application has the feature, so what it consists of is imported when it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from redrive.batches.alerts import ALERTS
from redrive.batches.duty import duties
from redrive.batches.handlers import kinds
from redrive.batches.remote.kinds import declare, declare_provider
from redrive.batches.remote.lanes import belongs, react
from redrive.batches.settings import BatchSettings, retention
from redrive.kernel.feature import Belongs, Feature, Need

if TYPE_CHECKING:
    from redrive.batches.batch import Batch as Batch
    from redrive.batches.batch import BatchCancelled as BatchCancelled
    from redrive.batches.batch import BatchConflict as BatchConflict
    from redrive.batches.batch import BatchState as BatchState
    from redrive.batches.batch import BatchUnknown as BatchUnknown
    from redrive.batches.producing import Batches as Batches
    from redrive.batches.producing import NewBatch as NewBatch
    from redrive.batches.producing import OwnBatch as OwnBatch
    from redrive.batches.service import BatchService as BatchService
    from redrive.kernel.diagnosis import Finding
    from redrive.kernel.ports.store import Store
    from redrive.settings import Settings

_PUBLIC = {
    "batch": ("Batch", "BatchCancelled", "BatchConflict", "BatchState", "BatchUnknown"),
    "producing": ("Batches", "NewBatch", "OwnBatch"),
    "service": ("BatchService",),
}


async def examine(store: Store, settings: Settings) -> Sequence[Finding]:
    """Returns what is wrong with batches, for doctor."""
    from redrive.batches import forgotten
    from redrive.batches.remote import stuck

    return [*await forgotten.examine(store, settings), *await stuck.examine(store, settings)]


BATCHES = Feature(
    "batches",
    __name__,
    command="batch",
    about="Tasks that belong together: create, list, show, watch, items, cancel, retry what failed.",
    duties=duties,
    react=react,
    kinds=kinds,
    declare=declare,
    provider=declare_provider,
    services={
        "batch": "redrive.batches.producing:Batches",
        "remote_batches": "redrive.batches.remote.application:RemoteBatches",
    },
    routes="redrive.batches.remote.routes:routers",
    streams=("/api/batches/remote",),
    commands="redrive.batches.commands:cli",
    pages="redrive.batches.pages:pages",
    settings=BatchSettings,
    retention=retention,
    examine=examine,
    alerts=ALERTS,
    belongs_by_join=lambda join: Belongs(f"batch {join}", f"/batches/{join}", "batches"),
    metrics="redrive.batches.metrics:metrics",
    belongs=belongs,
    verify="redrive.batches.remote.checks:check",
    needs=(Need.JOINS, Need.LEDGER),
)


def __getattr__(name: str) -> Any:
    for module, names in _PUBLIC.items():
        if name in names:
            return getattr(import_module(f"redrive.batches.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
