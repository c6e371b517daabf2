"""Reversals: a credit or an adjustment is undone by a movement of its own, once. Nothing leaves the books."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redrive.errors import Overdrawn
from redrive.feature import Conflict, NotFound, RedriveError, Request, Store
from redrive.kernel.microseconds import to_datetime
from redrive.ledger.accounts import TooLittle
from redrive.ledger.movements import MovementKind
from redrive.ledger.views import Account

REVERSIBLE = (MovementKind.CREDIT, MovementKind.ADJUST)
_AVAILABLE, _FROZEN, _SYSTEM = "account:", "frozen:", "system:"


class MovementUnknown(NotFound):
    """The books have no movement of this name."""

    code = "LEDGER_MOVEMENT_UNKNOWN"


class NotReversible(Conflict):
    """A movement that is put right in another way."""

    code = "LEDGER_NOT_REVERSIBLE"


class AlreadyReversed(Conflict):
    """A movement is reversed once."""

    code = "LEDGER_ALREADY_REVERSED"


@dataclass(slots=True, frozen=True)
class Made:
    """A movement as the books have it. ``change``: what it did to the side of the account that can be spent."""

    name: str
    kind: str
    account: str
    reference: str | None
    entries: tuple[tuple[str, int], ...]

    @property
    def change(self) -> int:
        return sum(amount for name, amount in self.entries if name.startswith(_AVAILABLE))

    @property
    def captured(self) -> int:
        """How much of it went to somebody else."""
        return sum(amount for name, amount in self.entries if name.startswith(_SYSTEM))


async def find_movement(store: Store, name: str) -> Made:
    """Returns a movement by its name."""
    rows = await store.sql.feature_rows("ledger", "movement", name)
    if not rows:
        raise MovementUnknown(
            f"the books have no movement {name!r}",
            hint="it is named as redrive ledger statement ACCOUNT names it: credit:KEY, adjust:KEY",
        )
    entries = tuple((str(row["account"]), int(row["amount"])) for row in rows)
    sides = [account.partition(":")[2] for account, _ in entries if account.startswith((_AVAILABLE, _FROZEN))]
    return Made(name, name.partition(":")[0], sides[0] if sides else "", rows[0]["reference"], entries)


def check_reversible(made: Made) -> None:
    """Refuses what is put right in another way, and says in which."""
    if made.kind not in REVERSIBLE or not _is_plain(made):
        raise _not_reversible(made)


def _is_plain(made: Made) -> bool:
    """Returns whether it is between one account and the rest of the world, as credits and adjustments are."""
    others = [name for name, _ in made.entries if not name.startswith(_SYSTEM)]
    return others == [f"{_AVAILABLE}{made.account}"]


def _not_reversible(made: Made) -> NotReversible:
    account = shlex.quote(made.account or "ACCOUNT")
    reference = shlex.quote(made.reference or "REFERENCE")
    if made.kind == MovementKind.FREEZE:
        what = f"froze money for {made.reference}"
        hint = f"redrive ledger release {account} --for {reference} --reason '…' gives back what is still frozen"
    elif made.kind == MovementKind.SETTLE and made.captured:
        what = f"charged {made.captured} for {made.reference}"
        hint = f"redrive ledger adjust {account} +{made.captured} --reason '…' gives that back"
    elif made.kind == MovementKind.SETTLE:
        what = f"gave back what was frozen for {made.reference}"
        hint = f"redrive ledger freeze {account} {made.change} --for {reference} --reason '…' freezes it again"
    elif made.kind == MovementKind.REVERSE:
        what = f"is itself the reversal of {made.reference}"
        hint = f"redrive ledger adjust {account} {-made.change:+} --reason '…'"
    else:
        what = "is no credit and no adjustment of one account"
        hint = "put each account right by redrive ledger adjust"
    return NotReversible(f"{made.name} {what}: only credits and adjustments are reversed", hint=hint)


def already_reversed(made: Made, by: Mapping[str, Any] | None = None) -> AlreadyReversed:
    when = "" if by is None else f", at {to_datetime(by['at']):%Y-%m-%d %H:%M:%S} UTC"
    return AlreadyReversed(
        f"{made.name} was reversed already{when}; nothing was moved",
        hint=f"redrive ledger statement {shlex.quote(made.account)} --for {shlex.quote(made.name)} shows it",
    )


def spent(error: Overdrawn, account: Account, needed: int) -> RedriveError:
    """Returns that what a movement brought is not there any more."""
    if account.available >= needed:
        return error  # of another side, or somebody has paid in meanwhile
    waits = f", and {account.frozen} more that are frozen" if account.frozen else ""
    told = f"account {account.name} has {account.available} to spend{waits}; this takes {needed} back"
    return TooLittle(f"{told}, and nothing was moved", hint=_instead(account, needed))


def _instead(account: Account, needed: int) -> str:
    if account.balance >= needed:
        return "try again when the work that the rest is frozen for has ended"
    if not account.available:
        return "it was spent: there is nothing to take back"
    return f"take what is there: redrive ledger adjust {shlex.quote(account.name)} -{account.available} --reason '…'"


def reversal_request(made: Made, unit: str) -> Request:
    """Returns a reversal as it is asked for."""
    change = -made.change
    told = (
        f"account {made.account} gets {change:,} {unit}"
        if change > 0
        else f"account {made.account} loses {-change:,} {unit}"
    )
    return Request(
        "ledger",
        "reverse",
        {"movement": made.name},
        abs(change),
        f"reverse {made.name} of {made.account}, {change:+,} {unit}",
        f"{told}; the movement and its reversal both stay in the books",
        f"/ledger/{made.account}",
        made.account,
    )
