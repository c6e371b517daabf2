"""Asks providers about items that ended here without their word: before their batch is settled, when a provider calls
late, and when somebody asks (``redrive batch reconcile``).

Before the settlement (``last_look``) what the provider says counts as if it had been said in time: the customer has not
been told yet, and the money is still frozen. Where it cannot be asked, the settlement waits for so long
(``BATCH_LAST_LOOK_SECONDS``); then these items are settled as unknown.

Afterwards nothing is charged: an item stays as it ended, and people decide about what ran all the same (``redrive batch
charge``). A job that still runs is cancelled at its provider if that can be done, since nobody waits for it. A worker
does it, who has the providers' secrets, as a task: a page of items at a time."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from redrive.batches.names import FEATURE, RECONCILE, SETTLE_QUEUE, STEP_ATTEMPTS, ItemState, item_kind
from redrive.batches.remote.commits import WORKER, forget_task, lost_items
from redrive.batches.remote.model import find_remote
from redrive.batches.remote.polling_policy import JOB_FAILED, kept_result, provider_code
from redrive.errors import RedriveError
from redrive.ids import new_id
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.outcome import Fail, Snooze
from redrive.kernel.payload import encode
from redrive.kernel.reactions import Rows
from redrive.kernel.task import NewTask
from redrive.remote import JobFailure, JobState, ProviderError, ProviderUnknown

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
AGAIN_S = 15.0  # until a provider that could not be asked is asked again
LEAST_S = 60.0  # for which a look that failed by itself is repeated, also where nobody waits for a provider
logger = logging.getLogger("redrive.batches")


def reconcile_task(batch: UUID | None, who: str, reason: str | None) -> tuple[NewTask, Commit]:
    """Returns the task that asks about the items of a batch, or of all, and what enqueues it."""
    payload = {"batch": None if batch is None else str(batch)}
    task = NewTask(new_id(), RECONCILE, SETTLE_QUEUE, json.dumps(payload), max_attempts=STEP_ATTEMPTS, own=True)
    target = None if batch is None else f"batch:{batch}"
    audit = Audit(who, "BATCH_RECONCILE", reason, target=target, after={"task": str(task.id)})
    return task, Commit(enqueues=[task], audits=[audit])


def accept(batch: RemoteBatch, items: int, who: str, reason: str) -> Commit:
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
class Answer:
    """What a provider said of an item's job: None where it knows none, an error where it did not answer. ``waits``:
    it may answer later."""

    row: Row
    job: str | None
    status: Status | ProviderError | None
    waits: bool = False


async def ask_provider(app: App, name: str, rows: Sequence[Row]) -> list[Answer]:
    """Asks a provider about items of its own, by the ids of their jobs, or by the keys of their starts."""
    try:
        provider = app.provider_of(name)
    except ProviderUnknown as error:
        gone = ProviderError(error.message, provider=name)
        return [Answer(row, row["job"], gone, waits=True) for row in rows]
    jobs = {(row["batch"], row["n"]): await _job(provider, row) for row in rows}
    known = await _poll(provider, [job for job in jobs.values() if isinstance(job, str)])
    found = []
    for row in rows:
        job = jobs[row["batch"], row["n"]]
        if isinstance(job, str):
            status = known.get(job)
            found.append(Answer(row, job, status, waits=isinstance(status, ProviderError)))
        else:
            found.append(Answer(row, None, job, waits=job is not None and _can_be_asked(provider, row)))
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
    app: App, store: Store, said: Answer, counts: Counter[str], worth: Counter[str], ran: Counter[str]
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
    if not await _write(store, row, word, status):
        return
    if word == STOPPED and not await _ask_to_end(provider, str(said.job)):
        word = RUNNING
        await _write(store, row, word, status)
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


async def _write(store: Store, row: Row, word: str, status: Status | None) -> bool:
    """Returns whether an answer was written down: not where the item is not as it was asked about any more, since it
    was charged for, or started again, or somebody else has heard how its job ended."""
    try:
        await store.apply(_answer_commit(row, word, status))
    except RedriveError:
        now = await store.sql.feature_rows(FEATURE, "item_at", str(row["batch"]), row["n"])
        if now and now[0]["unknown"] and (now[0]["round"], now[0]["state"]) == (row["round"], row["state"]):
            raise
        return False
    return True


def _answer_commit(row: Row, word: str, status: Status | None) -> Commit:
    """Returns what is kept of a provider's answer. One that still runs stays unknown: its end is asked for again."""
    place = {"batch": str(row["batch"]), "n": row["n"], "round": row["round"]}
    asked = Rows(FEATURE, "item_still_unknown", (place,))
    if status is not None and status.state.ended:
        own = record_late(place, row, status)
        return replace(own, rows=[asked, *own.rows])
    said = {"said": word, "job": row["job"], "late": False, "unknown": status is not None, "result": None}
    after = {"item": row["n"], "round": row["round"], "job": row["job"], "said": word, "charged": 0}
    why = f"item {row['n']} was {row['state']} without its provider's word"
    audit = Audit(WORKER, "BATCH_RECONCILED", why, target=f"batch:{row['batch']}", scope=row["scope"], after=after)
    return Commit(rows=[asked, Rows(FEATURE, "item_late", ({**place, **said},))], audits=[audit])


async def look_at_late_job(app: App, store: Store, place: Mapping[str, Any], _: Any) -> dict[str, Any]:
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
    await store.apply(record_late(place, row, found))
    return {"late": found.state}


def record_late(place: Mapping[str, Any], row: Mapping[str, Any], found: Status) -> Commit:
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
        audits=[Audit(WORKER, "BATCH_LATE_RESULT", why, target=target, scope=row["scope"], after=after)],
    )


async def last_look(
    app: App, store: Store, batch: RemoteBatch, unended: int, state: Mapping[str, Any] | None, seconds: float
) -> Snooze | None:
    """Asks about a page of such items. Returns that there is more to ask, or that the provider could not be asked and
    is asked again; None when the batch can be settled. ``unended``: items that nobody will run any more; ``state``:
    what was left by the look before."""
    seen = {"after": 0, "since": None, "unanswered": 0, **(state or {})}
    try:
        return await _ask_page(app, store, batch, unended, seen, seconds)
    except Exception as error:  # ours: what the provider would have said is not known for that
        if (await find_remote(store, batch.id)).version != batch.version:
            raise  # somebody else has moved it: it is looked at anew
        text = "the last look at batch %s failed, and is repeated: %s: %s"
        told = {"event": "batch.last_look_failed"}
        logger.warning(text, batch.id, type(error).__name__, error, extra=told)
        return await _ask_again(store, seen, max(seconds, LEAST_S))


async def _ask_page(
    app: App, store: Store, batch: RemoteBatch, unended: int, seen: Mapping[str, Any], seconds: float
) -> Snooze | None:
    if unended:
        await store.apply(Commit(rows=lost_items(batch, unended)))
    rows = await store.sql.feature_rows(FEATURE, "items_unseen", str(batch.id), batch.round, seen["after"], PAGE)
    if rows and await _circuit_open(store, batch):
        return await _ask_again(store, seen, seconds)
    found = await ask_provider(app, batch.provider, rows) if rows else []
    answers = [_item_change(one) for one in found]
    if any(answers):
        await store.apply(_last_look_commit(batch, found, [one for one in answers if one is not None]))
    unanswered = seen["unanswered"] + sum(one.waits for one in found)
    if len(rows) == PAGE:
        return Snooze(0.0, state={**seen, "after": rows[-1]["n"], "unanswered": unanswered})
    return await _ask_again(store, seen, seconds) if unanswered else None


async def _circuit_open(store: Store, batch: RemoteBatch) -> bool:
    kind = item_kind(batch.provider)
    return any(row.open and kind in row.kinds for row in await store.circuits())


async def _ask_again(store: Store, seen: Mapping[str, Any], seconds: float) -> Snooze | None:
    """Returns that all is asked again later; None when that has gone on for long enough."""
    now = (await store.now()).timestamp()
    since = now if seen["since"] is None else seen["since"]
    left = since + seconds - now
    return Snooze(min(AGAIN_S, left), state={"since": since, "until": since + seconds}) if left > 0 else None


def last_look_until(state: Mapping[str, Any] | None) -> datetime | None:
    """Returns until when a settlement asks again, by what its last look has left; None before the first one."""
    until = (state or {}).get("until")
    return None if until is None else datetime.fromtimestamp(until, UTC)


def _item_change(one: Answer) -> dict[str, Any] | None:
    """Returns what becomes of an item; None where nobody can say."""
    if isinstance(one.status, ProviderError):
        return None
    row, status = one.row, one.status
    place = {"batch": str(row["batch"]), "n": row["n"], "round": row["round"], "job": one.job}
    if status is None:  # there is no such job
        return {**place, "said": MISSING, "unknown": False}
    said = {**place, "said": status.state, "unknown": not status.state.ended}
    if status.state is JobState.SUCCEEDED:
        kept = kept_result(str(one.job), status.result)
        if isinstance(kept, Fail):
            return {**said, "code": kept.code, "message": kept.message, "type": kept.failure_type}
        return {**said, "state": ItemState.COMPLETED, "result": None if kept is None else encode(kept, "result")}
    if status.state is JobState.FAILED:
        why = status.failure or JobFailure("the provider does not say why")
        return {**said, "code": provider_code(why.code, JOB_FAILED), "message": why.message, "type": why.failure_type}
    return {**said, "state": ItemState.CANCELLED} if status.state is JobState.CANCELLED else said


def _last_look_commit(batch: RemoteBatch, found: Sequence[Answer], answers: Sequence[dict[str, Any]]) -> Commit:
    """Returns what writes them down. Tasks of items that have not failed after all are not listed as failed."""
    ended = {one["n"] for one in answers if "state" in one}
    why = f"the provider's word came before batch {batch.id} was settled"
    tasks = [
        forget_task(one.row["task"], why) for one in found if one.row["n"] in ended and one.row["task"] is not None
    ]
    said = Counter(str(one["said"]) for one in answers)
    said[UNANSWERED] = len(found) - len(answers)
    after = {"round": batch.round, **{name: n for name, n in said.items() if n}}
    audit = Audit(WORKER, "BATCH_LAST_LOOK", target=batch.reference, scope=batch.scope, after=after)
    # Another worker may have settled it while this one asked: what it was told then stays.
    unsettled = Rows(FEATURE, "remote_still_processing", ({"id": str(batch.id), "round": batch.round},))
    return Commit(transitions=tasks, rows=[unsettled, Rows(FEATURE, "items_seen", tuple(answers))], audits=[audit])
