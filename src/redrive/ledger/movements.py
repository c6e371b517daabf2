"""Movements of money, as values: what a feature adds to a Commit or returns as effects of a settlement.

Nothing is looked up here, so a reaction may call these. Each names a ``key`` and lands once: the same again changes
nothing. Put ``postings`` and ``rows`` into the same Commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from redrive.errors import Overdrawn
from redrive.feature import InvalidInput, Posting, RedriveError, Rows
from redrive.kernel.task import MAX_TEXT, MAX_TEXT_BYTES
from redrive.ledger.accounts import (
    ADJUST,
    CREDIT,
    MOST_REFERENCE,
    REVENUE,
    TooLittle,
    available,
    check_account,
    check_amount,
    check_change,
    frozen,
)

if TYPE_CHECKING:
    from redrive.ledger.views import Account


class MovementKind(StrEnum):
    """What a movement is. A movement is named ``KIND:KEY``, and that is the key of its posting."""

    CREDIT = "credit"
    ADJUST = "adjust"
    FREEZE = "freeze"
    SETTLE = "settle"
    REVERSE = "reverse"

    def name_of(self, key: str) -> str:
        """Returns how the books name a movement of this kind."""
        return f"{self.value}:{key}"


@dataclass(slots=True, frozen=True)
class Movement:
    """Postings, and the rows that say what they are for. Of both stores, in this order."""

    postings: tuple[Posting, ...]
    rows: tuple[Rows, ...] = ()

    def taken(self, side: str) -> int:
        """Returns how much it takes from one side of an account."""
        return -sum(amount for posting in self.postings for name, amount in posting.entries if name == side)


def credit(account: str, amount: int, key: str, *, reason: str | None = None) -> Movement:
    """Returns the movement that brings money to an account, from outside."""
    check_amount(amount)
    return Movement(
        (Posting(MovementKind.CREDIT.name_of(key), ((CREDIT, -amount), (available(account), amount)), reason),)
    )


def adjust(account: str, change: int, key: str, *, reason: str | None = None) -> Movement:
    """Returns the movement that puts an account right: more, or less, but never below zero."""
    entries = ((ADJUST, -check_change(change)), (available(account), change))
    return Movement((Posting(MovementKind.ADJUST.name_of(key), entries, reason),))


def freeze(account: str, amount: int, reference: str, key: str, *, reason: str | None = None) -> Movement:
    """Returns the movement that freezes money for some work, ``reference`` (``batch:ID``). Where there is too little,
    whatever it lands with is refused."""
    check_amount(amount)
    entries = ((available(account), -amount), (frozen(account), amount))
    return _under(account, reference, Posting(MovementKind.FREEZE.name_of(key), entries, reason))


def settle(
    account: str,
    reference: str,
    key: str,
    *,
    captured: int = 0,
    released: int = 0,
    to: str = REVENUE,
    reason: str | None = None,
) -> Movement:
    """Returns the one movement that ends a freeze or a part of it: what was earned goes to ``to``, the rest back."""
    if captured < 0 or released < 0:
        raise InvalidInput("what is captured and what is released are 0 or more", hint="adjust takes money back")
    check_amount(captured + released)
    parts = ((frozen(account), -(captured + released)), (to, captured), (available(account), released))
    return _under(
        account, reference, Posting(MovementKind.SETTLE.name_of(key), tuple(part for part in parts if part[1]), reason)
    )


def reverse(account: str, movement: str, entries: Iterable[tuple[str, int]], *, reason: str | None = None) -> Movement:
    """Returns the movement that undoes another one, by what that has entered; named after it, it lands once."""
    posting = Posting(reversal_of(movement), tuple((name, -amount) for name, amount in entries), reason)
    said = {"posting": posting.key, "account": check_account(account), "reference": movement}
    return Movement((posting,), (Rows("ledger", "movements", (said,)),))


def reversal_of(movement: str) -> str:
    """Returns how the books name the reversal of a movement, whose own name may leave no room for more."""
    name = MovementKind.REVERSE.name_of(movement)
    if len(name) <= MAX_TEXT and len(name.encode()) <= MAX_TEXT_BYTES:
        return name
    return MovementKind.REVERSE.name_of(hashlib.sha256(movement.encode()).hexdigest())


def must_be_open(account: str) -> Rows:
    """Returns the row that refuses what it lands with unless the account is open, or opened by the same transaction."""
    return Rows("ledger", "must_be_open", ({"name": check_account(account)},))


def explained(error: Overdrawn, account: Account, refused: Movement) -> RedriveError:
    """Returns the books' refusal of a movement in words about the account, as it is now."""
    has, needed = account.available, refused.taken(available(account.name))
    if has >= needed:
        return error  # of another side, or somebody has paid in meanwhile
    waits = f", and {account.frozen} more that are frozen" if account.frozen else ""
    return TooLittle(
        f"account {account.name} has {has} to spend{waits}; this needs {needed}, and nothing was moved",
        hint=f"redrive ledger credit {account.name} {needed - has} --reason '…', or move less",
    )


def moved(*references: str) -> Rows:
    """Returns the rows that say that work goes on for which money is frozen: then it is not at risk."""
    return Rows("ledger", "reference_moved", tuple({"reference": check_reference(one)} for one in references))


def moved_at(references: Mapping[str, int]) -> Rows:
    """Returns the rows that say when work went on last, by reference, in microseconds since 1970."""
    said = tuple({"reference": check_reference(one), "at": at} for one, at in references.items())
    return Rows("ledger", "reference_moved_at", said)


def check_reference(reference: object) -> str:
    """Refuses what cannot say what money is frozen for."""
    if not isinstance(reference, str) or not 0 < len(reference) <= MOST_REFERENCE or not reference.isprintable():
        raise InvalidInput(f"a reference is text of 1-{MOST_REFERENCE} characters, not {reference!r}")
    return reference


def _under(account: str, reference: str, posting: Posting) -> Movement:
    said = {"account": check_account(account), "reference": check_reference(reference)}
    return Movement(
        (posting,),
        (
            Rows("ledger", "movements", ({"posting": posting.key, **said},)),
            Rows("ledger", "freezes", (said,)),
            Rows("ledger", "unfrozen", (said,)),
        ),
    )
