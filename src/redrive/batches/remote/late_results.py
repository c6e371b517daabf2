"""Late results: a provider calls for a job whose item has ended without it, by its time limit or by a cancel.

What became of the job is written to the item and to the audit log. Nothing is charged: the item stays as it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from redrive.batches.batch import FEATURE
from redrive.batches.remote.job_result import kept_result
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.outcome import Fail
from redrive.kernel.payload import encode
from redrive.kernel.reactions import Rows
from redrive.remote import ProviderError

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.kernel.ports.store import Store
    from redrive.remote import Status


async def look_at_late(app: App, store: Store, place: Mapping[str, Any]) -> dict[str, Any]:
    """Polls the job once, and records what is said. Raises what the provider raises: that is tried again."""
    rows = await store.sql.feature_rows(FEATURE, "item_at", place["batch"], place["n"])
    if not rows or rows[0]["round"] != place["round"] or rows[0]["job"] is None:
        return {"late": None}
    row = rows[0]
    found = (await app.provider_of(row["provider"]).poll([row["job"]])).get(row["job"])
    if isinstance(found, ProviderError):
        raise found
    if found is None or not found.state.ended:
        return {"late": None}
    await store.apply(recorded(place, row, found))
    return {"late": found.state}


def recorded(place: Mapping[str, Any], row: Mapping[str, Any], found: Status) -> Commit:
    """Returns what is kept of a late result."""
    kept = kept_result(row["job"], found.result)
    lost = kept.message if isinstance(kept, Fail) else None
    result = None if kept is None or lost else encode(kept, "result")
    after = {"item": place["n"], "round": place["round"], "job": row["job"], "said": found.state, "charged": 0}
    if lost:
        after["not_stored"] = lost
    said = {"result": result, "said": found.state, "job": row["job"], "late": True, "unknown": False}
    target = f"batch:{place['batch']}"
    why = f"item {place['n']} was {row['state']} already: recorded, not charged"
    return Commit(
        rows=[Rows(FEATURE, "item_late", ({**place, **said},))],
        audits=[Audit("worker", "BATCH_LATE_RESULT", why, target=target, scope=row["scope"], after=after)],
    )
