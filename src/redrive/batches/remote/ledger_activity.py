"""Tells the ledger which batches move: money that is frozen for the others is at risk.

No poll writes anything for that. A batch is looked at when the ledger has heard nothing of it for half the time after
which its money counts as at risk, and then the ledger is told when its last item moved."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from redrive.batches.batch import FEATURE
from redrive.kernel.commit import Commit
from redrive.ledger import movements
from redrive.ledger.settings import LedgerSettings

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.settings import Settings

PAGE = 200
PREFIX = "batch:"


async def tell_ledger(store: Store, settings: Settings, stopping: Callable[[], bool]) -> None:
    """Says of each batch that the ledger takes for still when it moved last."""
    hours, after = settings.of(LedgerSettings).at_risk_hours / 2, ""
    while not stopping():
        still = await store.sql.feature_rows("ledger", "still", hours, PREFIX, after, PAGE)
        if not still:
            return
        known = {str(row["reference"]): int(row["moved_at"]) for row in still}
        ids = json.dumps([reference.removeprefix(PREFIX) for reference in known])
        found = {
            f"{PREFIX}{row['id']}": int(row["moved_at"])
            for row in await store.sql.feature_rows(FEATURE, "remote_last_moves", ids)
            if row["moved_at"] is not None
        }
        moved = {reference: at for reference, at in found.items() if at > known[reference]}
        if moved:
            await store.apply(Commit(rows=[movements.moved_at(moved)]))
        if len(still) < PAGE:
            return
        after = str(still[-1]["reference"])
