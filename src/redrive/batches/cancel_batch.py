"""Cancels batches: one operation cancels what has not ended, and what says so lands with its beginning."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import UUID

from redrive.batches.batch import FEATURE
from redrive.errors import ChangedMeanwhile
from redrive.feature import Audit, CloseJoin, Commit, Rows, Store
from redrive.kernel.failed import FailureFilter
from redrive.kernel.operation import Action
from redrive.ops.allowance import UNRESTRICTED
from redrive.ops.operations import lifecycle
from redrive.ops.operations.drive import step

DRIVEN_FOR_S = 10.0  # by whoever gives a batch up; workers go on with the rest


def marking(
    batch: UUID, by: str, why: str | None, *, scope: str | None = None, given_up: bool = False
) -> Callable[[str], Commit]:
    """Returns what lands with the operation that cancels a batch: it is marked, and takes no more items. ``given_up``:
    by its maker, who may make it anew under the same key."""

    def beside(operation: str) -> Commit:
        row = {"id": str(batch), "operation": operation, "by": by, "reason": why, "given_up": given_up}
        said = Audit(by, "BATCH_CANCEL", why, bulk_id=operation, target=f"batch:{batch}", scope=scope)
        return Commit(rows=[Rows(FEATURE, "cancelled", (row,))], controls=[CloseJoin(batch)], audits=[said])

    return beside


async def give_up(store: Store, batch: UUID, by: str, why: str) -> None:
    """Cancels a batch that was not sealed, with everything that was added: at once, as far as there is time for it."""
    operation, _ = await lifecycle.begin(
        store,
        Action.CANCEL,
        FailureFilter(join=str(batch)),
        actor=by,
        rule=UNRESTRICTED,
        reason=why,
        beside=marking(batch, by, why, given_up=True),
    )
    ends = time.monotonic() + DRIVEN_FOR_S
    try:
        while time.monotonic() < ends and await step(store, operation.id, f"maker:{batch}") is not None:
            pass
    except ChangedMeanwhile:
        pass  # a worker is at it
