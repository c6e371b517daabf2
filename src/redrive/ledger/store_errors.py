"""What a refusal of the database means, in words about an account."""

from __future__ import annotations

from redrive.errors import Overdrawn
from redrive.feature import RedriveError, Store
from redrive.integrations.own_commit import causes
from redrive.ledger.accounts import Freeze, NotFrozen, TooLittle, available, freeze_of, frozen, unknown
from redrive.ledger.movements import Movement

_NEVER_NEGATIVE = "ledger_freeze_never_negative"  # the constraint of a freeze
_OPENED_BY = "opened_by"  # what the statement must_be_open leaves out


async def find_freeze(store: Store, account: str, reference: str) -> Freeze | None:
    """Returns what is frozen for some work."""
    rows = await store.sql.feature_rows("ledger", "freeze", account, reference)
    return freeze_of(rows[0]) if rows else None


def nothing_frozen(account: str, reference: str) -> NotFrozen:
    return NotFrozen(
        f"nothing of {account} is frozen for {reference!r}", hint=f"redrive ledger show {account} says what is"
    )


async def not_frozen(store: Store, error: Exception, account: str, moved: Movement) -> NotFrozen | None:
    """Returns the refusal of a settlement by how much is frozen now; None where that is not why."""
    wanted = moved.taken(frozen(account))
    if wanted <= 0 or not (isinstance(error, Overdrawn) or _says(error, _NEVER_NEGATIVE)):
        return None
    reference = str(moved.rows[0].values[0]["reference"])
    found = await find_freeze(store, account, reference)
    if found is None:
        return nothing_frozen(account, reference)
    if found.amount >= wanted:
        return None
    return NotFrozen(f"{found.amount} of {account} are frozen for {reference}, not {wanted}")


def refused_within(error: Exception, account: str, moved: Movement) -> RedriveError | None:
    """Returns the refusal of a movement in the caller's own transaction, where nothing can be looked up: others do not
    see what is in it. None where it has other reasons."""
    if _says(error, _OPENED_BY):
        return unknown(account)
    if not isinstance(error, Overdrawn) and not _says(error, _NEVER_NEGATIVE):
        return None
    if (wanted := moved.taken(frozen(account))) > 0:
        return NotFrozen(f"less than {wanted} of {account} are frozen for this; nothing was moved")
    needed = moved.taken(available(account))
    return TooLittle(f"account {account} has less to spend than the {needed} that this needs; nothing was moved")


def _says(error: Exception, what: str) -> bool:
    return any(what in str(cause) for cause in causes(error))
