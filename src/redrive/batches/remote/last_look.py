"""The last look at a provider before a batch is settled: at items that were failed without its word, since nobody could
ask (an open circuit), worker after worker died, their time was over, or their task was lost.

What the provider says now counts as if it had been said in time: the customer has not been told yet, and the money is
still frozen. Where it cannot be asked, the settlement waits for so long (``BATCH_LAST_LOOK_SECONDS``); then these items
are settled as unknown, and ``redrive batch reconcile`` asks about them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from redrive.batches.batch import FEATURE, ItemState
from redrive.batches.remote.end_items import lost_items
from redrive.batches.remote.job_result import kept_result
from redrive.batches.remote.model import find_remote
from redrive.batches.remote.names import item_kind
from redrive.batches.remote.polling_policy import JOB_FAILED, provider_code
from redrive.batches.remote.reconcile import MISSING, UNANSWERED, Said, ask_provider
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.machine import Event, Transition
from redrive.kernel.outcome import Fail, Snooze
from redrive.kernel.payload import encode
from redrive.kernel.reactions import Rows
from redrive.kernel.task import State
from redrive.remote import JobFailure, JobState, ProviderError

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.batches.remote.model import RemoteBatch
    from redrive.kernel.ports.store import Store

PAGE = 100
AGAIN_S = 15.0  # until a provider that could not be asked is asked again
LEAST_S = 60.0  # for which a look that failed by itself is repeated, also where nobody waits for a provider
WORKER = "worker"
logger = logging.getLogger("redrive.batches")


async def last_look(
    app: App, store: Store, batch: RemoteBatch, unended: int, state: Mapping[str, Any] | None, seconds: float
) -> Snooze | None:
    """Asks about a page of such items. Returns that there is more to ask, or that the provider could not be asked and
    is asked again; None when the batch can be settled. ``unended``: items that nobody will run any more; ``state``:
    what was left by the look before."""
    seen = {"after": 0, "since": None, "unanswered": 0, **(state or {})}
    try:
        return await _look(app, store, batch, unended, seen, seconds)
    except Exception as error:  # ours: what the provider would have said is not known for that
        if (await find_remote(store, batch.id)).version != batch.version:
            raise  # somebody else has moved it: it is looked at anew
        text = "the last look at batch %s failed, and is repeated: %s: %s"
        told = {"event": "batch.last_look_failed"}
        logger.warning(text, batch.id, type(error).__name__, error, extra=told)
        return await _again(store, seen, max(seconds, LEAST_S))


async def _look(
    app: App, store: Store, batch: RemoteBatch, unended: int, seen: Mapping[str, Any], seconds: float
) -> Snooze | None:
    if unended:
        await store.apply(Commit(rows=lost_items(batch, unended)))
    rows = await store.sql.feature_rows(FEATURE, "items_unseen", str(batch.id), batch.round, seen["after"], PAGE)
    if rows and await _circuit_open(store, batch):
        return await _again(store, seen, seconds)
    found = await ask_provider(app, batch.provider, rows) if rows else []
    answers = [_answer(one) for one in found]
    if any(answers):
        await store.apply(_commit(batch, found, [one for one in answers if one is not None]))
    unanswered = seen["unanswered"] + sum(one.waits for one in found)
    if len(rows) == PAGE:
        return Snooze(0.0, state={**seen, "after": rows[-1]["n"], "unanswered": unanswered})
    return await _again(store, seen, seconds) if unanswered else None


async def _circuit_open(store: Store, batch: RemoteBatch) -> bool:
    kind = item_kind(batch.provider)
    return any(row.open and kind in row.kinds for row in await store.circuits())


async def _again(store: Store, seen: Mapping[str, Any], seconds: float) -> Snooze | None:
    """Returns that all is asked again later; None when that has gone on for long enough."""
    now = (await store.now()).timestamp()
    since = now if seen["since"] is None else seen["since"]
    left = since + seconds - now
    return Snooze(min(AGAIN_S, left), state={"since": since, "until": since + seconds}) if left > 0 else None


def last_look_until(state: Mapping[str, Any] | None) -> datetime | None:
    """Returns until when a settlement asks again, by what its last look has left; None before the first one."""
    until = (state or {}).get("until")
    return None if until is None else datetime.fromtimestamp(until, UTC)


def _answer(one: Said) -> dict[str, Any] | None:
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


def _commit(batch: RemoteBatch, found: Sequence[Said], answers: Sequence[dict[str, Any]]) -> Commit:
    """Returns what writes them down. Tasks of items that have not failed after all are not listed as failed."""
    ended = {one["n"] for one in answers if "state" in one}
    why = f"the provider's word came before batch {batch.id} was settled"
    tasks = [
        Transition(
            UUID(str(one.row["task"])),
            Event.CANCEL,
            State.CANCELLED,
            actor=WORKER,
            reason=why,
            action="TASK_FORGET",
            forgotten=True,
            sources=(State.FAILED,),
        )
        for one in found
        if one.row["n"] in ended and one.row["task"] is not None
    ]
    said = Counter(str(one["said"]) for one in answers)
    said[UNANSWERED] = len(found) - len(answers)
    after = {"round": batch.round, **{name: n for name, n in said.items() if n}}
    audit = Audit(WORKER, "BATCH_LAST_LOOK", target=batch.reference, scope=batch.scope, after=after)
    # Another worker may have settled it while this one asked: what it was told then stays.
    unsettled = Rows(FEATURE, "remote_still_processing", ({"id": str(batch.id), "round": batch.round},))
    return Commit(transitions=tasks, rows=[unsettled, Rows(FEATURE, "items_seen", tuple(answers))], audits=[audit])
