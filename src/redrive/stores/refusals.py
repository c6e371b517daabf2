"""Words what stores refuse, once for all of them."""

from __future__ import annotations

import logging
import re
import shlex
from pathlib import Path
from uuid import UUID

from redrive.errors import (
    ChangedMeanwhile,
    InvalidInput,
    LeaseLost,
    MayHaveLanded,
    Overdrawn,
    SchemaError,
    StoreError,
    StoreUnavailable,
    TooManyNames,
    TransactionOver,
    WrongSetting,
)
from redrive.kernel.diagnosis import Finding, Level
from redrive.kernel.records import Put
from redrive.kernel.task import MAX_PAYLOAD_BYTES
from redrive.stores.shown import HIDDEN, shown_scheme

PAYLOAD_TOO_LARGE = f"its payload is over the limit of {MAX_PAYLOAD_BYTES:,} bytes"
NEVER_NEGATIVE = "account_never_negative"  # the constraint, in both databases
_ACCOUNT_ROW = re.compile(r"\((.*), -\d+\)", re.DOTALL)
logger = logging.getLogger("redrive.store")


def lease_lost(task_id: UUID) -> LeaseLost:
    return LeaseLost(f"task {task_id} is no longer held by this worker; its transaction was rolled back")


def too_many_names(kind: str, queue: str, most: int) -> TooManyNames:
    return TooManyNames(
        f"too many names: kind {kind} in queue {queue} would be one more than {most} that no application has declared",
        hint="start a worker whose application has the kind and serves the queue, or raise REDRIVE_MAX_NAMES for the"
        " workers; names that have no tasks any more are given back after a day",
    )


def changed_meanwhile(put: Put) -> ChangedMeanwhile:
    return ChangedMeanwhile(f"{put.collection} {put.id} was changed by somebody else", hint="look at it and try again")


def circuit_changed(name: str) -> ChangedMeanwhile:
    return ChangedMeanwhile(f"circuit {name} was changed by somebody else", hint="look at it and try again")


def overdrawn(detail: str | None) -> str | None:
    """Returns the account that PostgreSQL's DETAIL shows: "… (customer:bob, -5)." in whatever language."""
    row = _ACCOUNT_ROW.search(detail or "")
    return row and row[1]


def below_zero(account: str | None) -> Overdrawn:
    """Returns the error about a posting that an account has too little for; None where the database did not say
    which."""
    return Overdrawn(
        f"{'an account' if account is None else f'account {account!r}'} would go below zero; nothing was posted",
        hint="only accounts named system:… may; what comes from outside is taken from one of those",
        account=account,
    )


def no_usable_schema(where: str, said: str) -> SchemaError:
    return SchemaError(
        f"{where} has no usable redrive schema: {said}",
        hint="run: redrive migrate, with the --url or --app of this store",
    )


def migrate_command(url: str) -> str:
    """Returns the command that brings a store up to date, by its address without a password."""
    url = url.replace(f":{HIDDEN}@", "@")
    if not url or HIDDEN in url:
        return "redrive migrate, with the --url or --app of this store"
    path = url.removeprefix("sqlite:///")
    # A shell is seldom where the program was started.
    whole = f"sqlite:///{Path(path).resolve()}" if path != url and not path.startswith((":", "/")) else url
    return f"redrive migrate --url {shlex.quote(whole)}"


def not_now(where: str, said: str, hint: str) -> StoreUnavailable:
    return StoreUnavailable(f"{where} cannot be used right now: {said}", hint=hint)


def may_have_landed(error: StoreUnavailable) -> MayHaveLanded:
    return MayHaveLanded(
        f"{error.message}; the answer to the commit was lost: all of it has landed, or nothing",
        hint="look before you try again, unless a repeat is recognised: by a key, a join's id or a posting's key",
    )


def refused_url(url: str, why: str, hint: str) -> WrongSetting:
    """Returns the error about a URL, which shows no more of it than its scheme."""
    return WrongSetting(f"the store's URL ({shown_scheme(url)}) {why}", hint=hint)


def missing_index(name: str) -> Finding:
    return Finding(
        Level.CRITICAL,
        "missing_index",
        f"the index {name} is missing: claims may read whole tables",
        "see its definition with: redrive migrate --sql",
    )


def log_set_aside(task_id: UUID, why: str) -> None:
    """Logs that a row that nothing can work with was failed by itself."""
    logger.error(
        "task %s was set aside: its row cannot be worked with: %s",
        task_id,
        why,
        extra={"event": "task.set_aside", "task_id": str(task_id), "reason": why},
    )


def log_postponed(task_id: UUID, why: str) -> None:
    """The same row, where it may not be failed: its feature is not known here, or does not let it end."""
    logger.warning(
        "task %s was put off, and not failed: its row cannot be worked with: %s",
        task_id,
        why,
        extra={"event": "task.postponed", "task_id": str(task_id), "reason": why},
    )


def uncountable(account: str) -> InvalidInput:
    """Returns the refusal of a movement after which an account would be out of bounds."""
    return InvalidInput(
        f"account {account} would have more than can be counted",
        hint="no account holds 2^63 or more, neither below nor above zero",
    )


def transaction_over() -> TransactionOver:
    """Returns the error about a handler's transaction that is used after its block."""
    return TransactionOver(
        "this transaction is over; it can only be used inside its 'async with' block, by the process that opened it",
        hint="move what uses it into the block, and wait there for tasks that were started in it",
    )


def ended_inside() -> StoreError:
    """Returns the error about a statement of the handler that ended the transaction the task should be completed in."""
    return StoreError(
        "the transaction was ended by a statement inside it; the task was not settled with it",
        hint="leave COMMIT and ROLLBACK to the end of the 'with' block; use savepoints inside it",
    )


def took_too_long(seconds: float) -> StoreError:
    """Returns the error about a query of an application's own rule that has used up its time."""
    return StoreError(f"it took longer than {seconds:g} s")
