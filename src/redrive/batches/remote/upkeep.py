"""What nobody would do otherwise for remote batches, done by duties, by the store's clock and through the machine.

Remote batches whose next step is gone (its task was
cancelled, erased, or never made) get another one, so that money is not frozen for good. Items are ended behind an open
circuit, where they are not claimed and their handler cannot say that their time is over, and those of which worker
after worker dies. And the ledger is told which batches move: money that is frozen for the others is at risk."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from redrive.batches.names import FEATURE, TOO_LONG
from redrive.batches.remote.commits import resume
from redrive.batches.remote.item_task import BATCH_CANCELLED, ItemMemo
from redrive.batches.remote.model import find_remote
from redrive.batches.remote.polling_policy import START_FAILED, provider_code
from redrive.errors import RedriveError
from redrive.feature import Store
from redrive.kernel.classify import FailureType
from redrive.kernel.commit import Commit
from redrive.kernel.failure import failure
from redrive.kernel.machine import DeadReason, Event, Transition
from redrive.kernel.reactions import Rows
from redrive.kernel.task import State
from redrive.ledger import movements
from redrive.ledger.settings import LedgerSettings

if TYPE_CHECKING:
    from redrive.settings import Settings

logger = logging.getLogger("redrive.batches")
PAGE = 200
UNENDED_ATTEMPTS = 2  # in a row, after which an item that is overdue is not left to another one
WAITING = (State.QUEUED, State.DELAYED, State.PAUSED)
PREFIX = "batch:"


async def bring_steps(store: Store, stopping: Callable[[], bool]) -> None:
    """Brings the next step of each batch that waits for one and has no task for it. One that is failed is left to
    operators: doctor names it."""
    async for row in steps(store):
        if stopping():
            return
        if row["gone"]:
            await _bring(store, row["id"])


async def steps(store: Store) -> AsyncIterator[dict[str, Any]]:
    """Yields each batch that is not settled, with what became of the task of its next step."""
    after = str(UUID(int=0))
    while rows := await store.sql.feature_rows(FEATURE, "remote_steps", after, PAGE):
        for row in rows:
            yield row
        if len(rows) < PAGE:
            return
        after = str(rows[-1]["id"])


async def _bring(store: Store, batch: object) -> None:
    try:
        found = await find_remote(store, batch)
        if found.settled:
            return
        await store.apply(resume(found))
    except RedriveError as error:  # somebody has moved it meanwhile, or removed it; else the next look brings it
        logger.info("batch %s was not resumed: %s", batch, error, extra={"event": "batch.not_resumed"})
        return
    logger.warning("batch %s had no task for its next step; it has one now", batch, extra={"event": "batch.resumed"})


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
