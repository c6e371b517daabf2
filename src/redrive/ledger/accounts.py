"""Accounts: how they are named in the books, and what is refused.

An account NAME has two sides there: ``account:NAME`` is what it can spend, ``frozen:NAME`` what waits for the end of
work that it pays for. Neither can go below zero. The rest of the world is ``system:…``, which can.
"""

from __future__ import annotations

from datetime import datetime

from redrive.feature import Conflict, InvalidInput, NotFound, check_name
from redrive.kernel.microseconds import to_micros

CREDIT, REVENUE, ADJUST = "system:credit", "system:revenue", "system:adjust"
MOST_REFERENCE = 200


class AccountUnknown(NotFound):
    """Nobody has opened an account of this name."""

    code = "LEDGER_ACCOUNT_UNKNOWN"


class AccountExists(Conflict):
    """An account of this name was opened before."""

    code = "LEDGER_ACCOUNT_EXISTS"


class TooLittle(Conflict):
    """An account has less than a movement needs; nothing was moved."""

    code = "LEDGER_TOO_LITTLE"


class NotFrozen(Conflict):
    """Less than this is frozen under the reference."""

    code = "LEDGER_NOT_FROZEN"


def available(account: str) -> str:
    """Returns what the books call the money that an account can spend."""
    return f"account:{check_account(account)}"


def frozen(account: str) -> str:
    """Returns what the books call the money of an account that waits."""
    return f"frozen:{check_account(account)}"


def check_account(name: object) -> str:
    """Refuses what cannot be the name of an account."""
    return check_name(name, "account")


def check_amount(amount: object) -> int:
    """Refuses what is no amount to move: it is a whole number of the smallest unit, above zero."""
    if type(amount) is not int or amount <= 0:
        raise InvalidInput(f"an amount is a whole number above 0, not {amount!r}", hint="count in the smallest unit")
    return amount


def check_change(amount: object) -> int:
    """Refuses what is no change: a whole number, below or above zero."""
    if type(amount) is not int or amount == 0:
        raise InvalidInput(f"a change is a whole number, not 0, and not {amount!r}", hint="count in the smallest unit")
    return amount


def unknown(name: str) -> AccountUnknown:
    return AccountUnknown(f"there is no account {name!r}", hint=f"open it: redrive ledger open {name}")


def micros(when: datetime) -> int:
    """Returns a time as statements take it."""
    if when.tzinfo is None:
        raise InvalidInput(f"{when.isoformat()} has no time zone", hint="say it: 2026-01-31T12:00:00Z")
    return to_micros(when)
