"""Items that nobody would end: those behind an open circuit are not claimed, so their handler cannot say that their
time is over, nor that their batch was cancelled; and those of which worker after worker dies never come to it. A duty
does both, by the store's clock and through the machine."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from redrive.batches.batch import FEATURE
from redrive.batches.remote.item_memo import ItemMemo
from redrive.batches.remote.lanes import BATCH_CANCELLED
from redrive.batches.remote.names import TOO_LONG
from redrive.batches.remote.polling_policy import START_FAILED, provider_code
from redrive.errors import RedriveError
from redrive.kernel.classify import FailureType
from redrive.kernel.commit import Commit
from redrive.kernel.failure import failure
from redrive.kernel.machine import DeadReason, Event, Transition
from redrive.kernel.ports.store import Store
from redrive.kernel.reactions import Rows
from redrive.kernel.task import State

logger = logging.getLogger("redrive.batches")
PAGE = 200
UNENDED_ATTEMPTS = 2  # in a row, after which an item that is overdue is not left to another one
WAITING = (State.QUEUED, State.DELAYED, State.PAUSED)


async def end_overdue(
    store: Store, seconds: float, stopping: Callable[[], bool], start_seconds: float | None = None
) -> None:
    """Fails items as a timeout that have taken longer than that, or by what the provider said where their start alone
    has, and stand behind an open circuit, or whose last attempts did not end. The polls of others come first: a job may
    have ended meanwhile."""
    kinds = {kind: row.reason for row in await store.circuits() if row.open for kind in row.kinds}
    starts = seconds if start_seconds is None else start_seconds
    while not stopping():
        rows = await store.sql.feature_rows(
            FEATURE, "items_overdue", seconds, json.dumps(sorted(kinds)), PAGE, starts, UNENDED_ATTEMPTS
        )
        if rows and not await _apply(store, _ended(rows, seconds, starts, kinds)):
            return
        if len(rows) < PAGE:
            return


async def cancel_unwanted(store: Store, stopping: Callable[[], bool], batch: UUID | None = None) -> None:
    """Cancels items of cancelled batches, or of one, that wait to be started: nobody has to ask the provider for that.
    Those that may have been started are left to their handler, which learns it."""
    while not stopping():
        rows = await store.sql.feature_rows(FEATURE, "items_unwanted", PAGE, None if batch is None else str(batch))
        if rows and not await _apply(store, Commit(transitions=[_cancelled(row) for row in rows])):
            return
        if len(rows) < PAGE:
            return


async def _apply(store: Store, commit: Commit) -> bool:
    """Returns whether it landed. Where something has changed since it was read, the next time is early enough."""
    try:
        applied = await store.apply(commit)
    except RedriveError as error:
        logger.warning("items were not ended: %s", error, extra={"event": "batch.not_ended"})
        return False
    return len(applied.lost) < len(commit.transitions)


def _ended(rows: list[dict[str, Any]], seconds: float, starts: float, kinds: Mapping[str, str | None]) -> Commit:
    """Fails them, if all of them are still overdue: one that was retried meanwhile has begun anew."""
    places = tuple(
        {"batch": str(row["batch"]), "n": row["n"], "seconds": seconds if row["over"] else starts} for row in rows
    )
    return Commit(
        transitions=[_too_long(row, seconds if row["over"] else starts, kinds) for row in rows],
        rows=[Rows(FEATURE, "items_still_overdue", places)],
    )


def _too_long(row: Mapping[str, Any], seconds: float, kinds: Mapping[str, str | None]) -> Transition:
    memo = ItemMemo.of(json.loads(row["memo"]) if row["memo"] else None)
    begun = f"job {row['job']} was not looked at" if row["job"] is not None else "it was not started"
    held = f"the circuit is open ({kinds[row['kind']] or 'by hand'})" if row["kind"] in kinds else None
    why = held or f"its last {row['attempts']} attempts did not end, as their workers died or it raised"
    message = f"it had not ended after {seconds:g} seconds; {begun}: {why}"
    code, type_ = TOO_LONG, FailureType.TIMEOUT
    if row["job"] is None and memo.since is not None:  # by what the provider said when it was asked last
        code, type_ = provider_code(memo.code, START_FAILED), FailureType(memo.type or FailureType.UNKNOWN)
        message = f"{memo.why or begun}; {why}"
    cause = failure(
        code,
        "timeout" if code == TOO_LONG else "provider_start",
        message,
        type=type_,
        where=str(row["kind"]),
        what="it had not ended, and its circuit is open" if held else "it had not ended, nor its last attempts",
        retryable=False,
    )
    return Transition(
        UUID(str(row["task"])),
        Event.REJECT,
        State.FAILED,
        failure=cause,
        dead=DeadReason.NON_RETRYABLE,
        sources=WAITING,
    )


def _cancelled(row: Mapping[str, Any]) -> Transition:
    return Transition(
        UUID(str(row["task"])),
        Event.CANCEL,
        State.CANCELLED,
        reason=BATCH_CANCELLED,
        sources=(State.QUEUED, State.DELAYED),
    )
