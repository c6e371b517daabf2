"""Asks providers about items that ended here without their word, and records what they say.

Nothing is charged: an item stays as it ended, and people decide about what ran all the same. A job that still runs is
cancelled at its provider if that can be done, since nobody waits for it. A worker does it, who has the providers'
secrets, as a task: a page of items at a time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from redrive.batches.batch import FEATURE
from redrive.batches.remote.late_results import recorded
from redrive.batches.remote.names import RECONCILE, SETTLE_QUEUE, STEP_ATTEMPTS
from redrive.ids import new_id
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.outcome import Snooze
from redrive.kernel.reactions import Rows
from redrive.kernel.task import NewTask
from redrive.remote import JobState, ProviderError, ProviderUnknown

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.kernel.ports.store import Store
    from redrive.remote import RemoteProvider, Status

PAGE = 100
MISSING = "missing"  # the provider knows no such job
FIRST = str(UUID(int=0))
Row = Mapping[str, Any]


@dataclass(slots=True, frozen=True)
class Reconciling:
    """The task that asks, and about how many items, up to ten thousand."""

    task: UUID
    items: int


def begun(batch: UUID | None, who: str, reason: str | None) -> tuple[NewTask, Commit]:
    """Returns the task that asks about the items of a batch, or of all, and what enqueues it."""
    payload = {"batch": None if batch is None else str(batch)}
    task = NewTask(new_id(), RECONCILE, SETTLE_QUEUE, json.dumps(payload), max_attempts=STEP_ATTEMPTS, own=True)
    target = None if batch is None else f"batch:{batch}"
    audit = Audit(who, "BATCH_RECONCILE", reason, target=target, after={"task": str(task.id)})
    return task, Commit(enqueues=[task], audits=[audit])


async def reconcile_page(app: App, store: Store, payload: Mapping[str, Any], state: Any) -> Any:
    """Asks about one page of items; returns what came of all, or that there is another page."""
    seen = {"batch": FIRST, "n": 0, "counts": {}, "worth": {}, **(state or {})}
    rows = await store.feature_rows(FEATURE, "items_unknown", payload["batch"], seen["batch"], seen["n"], PAGE)
    counts, worth = Counter[str](seen["counts"]), Counter[str](seen["worth"])
    for provider in sorted({row["provider"] for row in rows}):
        await _ask(app, store, provider, [row for row in rows if row["provider"] == provider], counts, worth)
    counts["asked"] += len(rows)
    if len(rows) == PAGE:
        last = {"batch": str(rows[-1]["batch"]), "n": rows[-1]["n"]}
        return Snooze(0.0, state={**last, "counts": dict(counts), "worth": dict(worth)})
    return {**{name: counts[name] for name in COUNTED}, "worth": dict(worth)}


# What is counted: items that were asked about, by what became of their jobs. "succeeded" ran all the same, "stopped"
# still ran and was asked to end, "running" cannot be, "missing" is not known to its provider, of "unanswered" nobody
# can say.
COUNTED = ("asked", "succeeded", "failed", "cancelled", "stopped", "running", MISSING, "unanswered")


async def _ask(
    app: App, store: Store, name: str, rows: Sequence[Row], counts: Counter[str], worth: Counter[str]
) -> None:
    try:
        provider = app.provider_of(name)
    except ProviderUnknown:
        counts["unanswered"] += len(rows)
        return
    jobs = {(row["batch"], row["n"]): await _job(provider, row) for row in rows}
    found = await _poll(provider, [job for job in jobs.values() if isinstance(job, str)])
    for row in rows:
        job = jobs[row["batch"], row["n"]]
        status = found.get(job) if isinstance(job, str) else job
        if isinstance(status, ProviderError):
            counts["unanswered"] += 1
            continue
        word = await _word(provider, job, status)
        counts[word] += 1
        if word == JobState.SUCCEEDED and row["account"]:
            worth[row["account"]] += row["price"]
        await store.apply(_said({**row, "job": job}, word, status))


async def _job(provider: RemoteProvider, row: Row) -> str | ProviderError | None:
    """Returns the id of an item's job; None where its provider has none, an error where nobody can say."""
    if row["job"] is not None:
        return str(row["job"])
    if not provider.can_find or row["start_key"] is None:
        return ProviderError("it cannot be asked by key", provider=provider.name)
    try:
        return await provider.find(row["start_key"])
    except ProviderError as error:
        return error


async def _poll(provider: RemoteProvider, jobs: Sequence[str]) -> Mapping[str, Status | ProviderError]:
    if not jobs:
        return {}
    try:
        return await provider.poll(jobs)
    except ProviderError as error:
        return dict.fromkeys(jobs, error)


async def _word(provider: RemoteProvider, job: object, status: Status | None) -> str:
    """Returns what is counted for an item. A job that still runs is asked to end: nobody waits for it."""
    if status is None:
        return MISSING
    if status.state.ended or not isinstance(job, str):
        return str(status.state)
    if not provider.can_cancel:
        return "running"
    try:
        await provider.cancel(job)
    except ProviderError:
        return "running"
    return "stopped"


def _said(row: Row, word: str, status: Status | None) -> Commit:
    """Returns what is kept of a provider's answer. One that still runs stays unknown: its end is asked for again."""
    place = {"batch": str(row["batch"]), "n": row["n"], "round": row["round"]}
    if status is not None and status.state.ended:
        return recorded(place, row, status)
    said = {"said": word, "job": row["job"], "late": False, "unknown": status is not None, "result": None}
    after = {"item": row["n"], "round": row["round"], "job": row["job"], "said": word, "charged": 0}
    why = f"item {row['n']} was {row['state']} without its provider's word"
    audit = Audit("worker", "BATCH_RECONCILED", why, target=f"batch:{row['batch']}", scope=row["scope"], after=after)
    return Commit(rows=[Rows(FEATURE, "item_late", ({**place, **said},))], audits=[audit])
