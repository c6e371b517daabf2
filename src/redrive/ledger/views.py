"""What is shown of accounts and of money that is frozen. An account's label is free text, and often somebody's name: it
is for those who may act."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, TypeVar

from redrive.feature import Closed, Open, Page
from redrive.kernel.microseconds import to_datetime
from redrive.kernel.records import Record

V = TypeVar("V")


@dataclass(slots=True, frozen=True)
class Account:
    """``available`` can be spent, ``frozen`` waits; together they are the balance."""

    name: Annotated[str, Open(column="account")]
    available: Annotated[int, Open("What it can spend.", column="available")]
    frozen: Annotated[int, Open("What waits for the end of work that it pays for.", column="frozen")]
    label: Annotated[str | None, Closed("What people call it; for operators.", column="label")]
    opened_at: Annotated[datetime, Open()]
    opened_by: Annotated[str, Open()]
    unit: Annotated[str, Open("What amounts are called.")]

    @property
    def balance(self) -> Annotated[int, Open("Both together.")]:
        return self.available + self.frozen

    @property
    def called(self) -> str:
        return f"{self.name} ({self.label})" if self.label else self.name


@dataclass(slots=True, frozen=True)
class Adjusted(Account):
    """An account as it is now, and the approval that its change waits for, where a second person has to agree."""

    approval: Annotated[Record | None, Open("With one, it changes when a second person has agreed.")] = None


@dataclass(slots=True, frozen=True)
class Freeze:
    """What is frozen now under a reference, since when, and when that last moved."""

    account: Annotated[str, Open(column="account")]
    amount: Annotated[int, Open(column="frozen")]
    since: Annotated[datetime, Open(column="since")]
    moved_at: Annotated[datetime, Open(column="last moved")]
    reference: Annotated[str, Open("What it is frozen for.", column="for")]


@dataclass(slots=True, frozen=True)
class AccountDetail(Account):
    """An account and what it has frozen, for what; or what it had at a time."""

    freezes: Annotated[list[Freeze], Open("What has not moved for longest comes first; empty at a time before.")]
    at: Annotated[datetime | None, Open("The time that was asked for; null: now.")] = None

    @property
    def sentence(self) -> str:
        has = f"{self.available} {self.unit} available, {self.frozen} frozen"
        if self.at is None:
            return f"account {self.called}: {has}"
        return f"account {self.name} had {has} at {self.at:%F %T} UTC"


@dataclass(slots=True, frozen=True)
class MoneyPage(Page[V]):
    """A part of a list with amounts."""

    unit: Annotated[str, Open("What amounts are called.")]

    @property
    def note(self) -> str:
        return f"amounts are {self.unit}"


@dataclass(slots=True, frozen=True)
class RiskPage(MoneyPage[V]):
    """Money at risk, with how much that is in all, and how much is frozen."""

    frozen: Annotated[int, Open()]
    at_risk: Annotated[int, Open()]


def account_of(row: Mapping[str, Any], unit: str) -> Account:
    """Returns the account that a row is about."""
    return Account(**{**row, "opened_at": to_datetime(row["opened_at"])}, unit=unit)


def freeze_of(row: Mapping[str, Any]) -> Freeze:
    """Returns the freeze that a row is about."""
    return Freeze(**{**row, "since": to_datetime(row["since"]), "moved_at": to_datetime(row["moved_at"])})
