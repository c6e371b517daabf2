"""Asks providers about items that ended here without their word, and records what they say.

Nothing is charged: an item stays as it ended, and people decide about what ran all the same (``redrive batch charge``).
Those of a batch that is not settled yet are looked at when it is (``last_look``). A job that still runs is
cancelled at its provider if that can be done, since nobody waits for it. A worker does it, who has the providers'
secrets, as a task: a page of items at a time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from redrive.batches.batch import FEATURE
from redrive.batches.remote.late_results import recorded
from redrive.batches.remote.names import RECONCILE, SETTLE_QUEUE, STEP_ATTEMPTS
from redrive.errors import RedriveError
from redrive.ids import new_id
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.outcome import Snooze
from redrive.kernel.reactions import Rows
from redrive.kernel.task import NewTask
from redrive.remote import JobState, ProviderError, ProviderUnknown

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.batches.remote.model import RemoteBatch
    from redrive.kernel.ports.store import Store
    from redrive.remote import RemoteProvider, Status

PAGE = 100
MISSING = "missing"  # the provider knows no such job
UNANSWERED = "unanswered"
RUNNING, STOPPED = "running", "stopped"
FIRST = str(UUID(int=0))
Row = Mapping[str, Any]
MOST_NAMED = 20  # batches with something to charge that a result names


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


def accepted(batch: RemoteBatch, items: int, who: str, reason: str) -> Commit:
    """Returns what takes the warning from items of a batch whose ends nobody will know; their marks stay."""
    audit = Audit(who, "BATCH_ACCEPT", reason, target=batch.reference, scope=batch.scope, after={"items": items})
    return Commit(rows=[Rows(FEATURE, "items_accepted", ({"batch": str(batch.id)},))], audits=[audit])


async def reconcile_page(app: App, store: Store, payload: Mapping[str, Any], state: Any) -> Any:
    """Asks about one page of items; returns what came of all, or that there is another page."""
    seen = {"batch": FIRST, "n": 0, "counts": {}, "worth": {}, "ran": {}, **(state or {})}
    rows = await store.sql.feature_rows(FEATURE, "items_unknown", payload["batch"], seen["batch"], seen["n"], PAGE)
    sums = {name: Counter[str](seen[name]) for name in ("counts", "worth", "ran")}
    for provider in sorted({row["provider"] for row in rows}):
        own = [row for row in rows if row["provider"] == provider]
        for said in await ask_provider(app, provider, own):
            await _record(app, store, said, **sums)
    sums["counts"]["asked"] += len(rows)
    if len(rows) == PAGE:
        last = {"batch": str(rows[-1]["batch"]), "n": rows[-1]["n"]}
        return Snooze(0.0, state={**last, **{name: dict(one) for name, one in sums.items()}})
    ran = dict(list(sums["ran"].items())[:MOST_NAMED])
    return {**{name: sums["counts"][name] for name in COUNTED}, "worth": dict(sums["worth"]), "ran": ran}


# What is counted: items that were asked about, by what became of their jobs. "succeeded" ran all the same, "stopped"
# still ran and was asked to end, "running" cannot be, "missing" is not known to its provider, of "unanswered" nobody
# can say. Besides, of those that ran: "worth" their price by account, "ran" their number by batch.
COUNTED = ("asked", "succeeded", "failed", "cancelled", STOPPED, RUNNING, MISSING, UNANSWERED)


@dataclass(slots=True, frozen=True)
class Said:
    """What a provider said of an item's job: None where it knows none, an error where it did not answer. ``waits``:
    it may answer later."""

    row: Row
    job: str | None
    status: Status | ProviderError | None
    waits: bool = False


async def ask_provider(app: App, name: str, rows: Sequence[Row]) -> list[Said]:
    """Asks a provider about items of its own, by the ids of their jobs, or by the keys of their starts."""
    try:
        provider = app.provider_of(name)
    except ProviderUnknown as error:
        gone = ProviderError(error.message, provider=name)
        return [Said(row, row["job"], gone, waits=True) for row in rows]
    jobs = {(row["batch"], row["n"]): await _job(provider, row) for row in rows}
    known = await _poll(provider, [job for job in jobs.values() if isinstance(job, str)])
    found = []
    for row in rows:
        job = jobs[row["batch"], row["n"]]
        if isinstance(job, str):
            status = known.get(job)
            found.append(Said(row, job, status, waits=isinstance(status, ProviderError)))
        else:
            found.append(Said(row, None, job, waits=job is not None and _can_be_asked(provider, row)))
    return found


def _can_be_asked(provider: RemoteProvider, row: Row) -> bool:
    return row["job"] is not None or (provider.can_find and row["start_key"] is not None)


async def _job(provider: RemoteProvider, row: Row) -> str | ProviderError | None:
    """Returns the id of an item's job; None where its provider has none, an error where nobody can say."""
    if row["job"] is not None:
        return str(row["job"])
    if not _can_be_asked(provider, row):
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


async def _record(
    app: App, store: Store, said: Said, counts: Counter[str], worth: Counter[str], ran: Counter[str]
) -> None:
    """Writes down what was said of an item, and counts it. A job that still runs is asked to end, since nobody waits
    for it: that is written down first, so that nobody starts its item again meanwhile and waits for that job."""
    row, status = {**said.row, "job": said.job}, said.status
    if isinstance(status, ProviderError):
        counts[UNANSWERED] += 1
        return
    provider = app.provider_of(row["provider"])
    word = MISSING if status is None or said.job is None else str(status.state) if status.state.ended else RUNNING
    if word == RUNNING and provider.can_cancel:
        word = STOPPED
    if not await _land(store, row, word, status):
        return
    if word == STOPPED and not await _ask_to_end(provider, str(said.job)):
        word = RUNNING
        await _land(store, row, word, status)
    counts[word] += 1
    if word == JobState.SUCCEEDED:
        ran[str(row["batch"])] += 1
        if row["account"]:
            worth[row["account"]] += row["price"]


async def _ask_to_end(provider: RemoteProvider, job: str) -> bool:
    try:
        await provider.cancel(job)
    except ProviderError:
        return False
    return True


async def _land(store: Store, row: Row, word: str, status: Status | None) -> bool:
    """Returns whether an answer was written down: not where the item is not as it was asked about any more, since it
    was charged for, or started again, or somebody else has heard how its job ended."""
    try:
        await store.apply(_commit(row, word, status))
    except RedriveError:
        now = await store.sql.feature_rows(FEATURE, "item_at", str(row["batch"]), row["n"])
        if now and now[0]["unknown"] and (now[0]["round"], now[0]["state"]) == (row["round"], row["state"]):
            raise
        return False
    return True


def _commit(row: Row, word: str, status: Status | None) -> Commit:
    """Returns what is kept of a provider's answer. One that still runs stays unknown: its end is asked for again."""
    place = {"batch": str(row["batch"]), "n": row["n"], "round": row["round"]}
    asked = Rows(FEATURE, "item_still_unknown", (place,))
    if status is not None and status.state.ended:
        own = recorded(place, row, status)
        return replace(own, rows=[asked, *own.rows])
    said = {"said": word, "job": row["job"], "late": False, "unknown": status is not None, "result": None}
    after = {"item": row["n"], "round": row["round"], "job": row["job"], "said": word, "charged": 0}
    why = f"item {row['n']} was {row['state']} without its provider's word"
    audit = Audit("worker", "BATCH_RECONCILED", why, target=f"batch:{row['batch']}", scope=row["scope"], after=after)
    return Commit(rows=[asked, Rows(FEATURE, "item_late", ({**place, **said},))], audits=[audit])
