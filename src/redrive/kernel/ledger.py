"""Postings: movements of money between accounts that add up to zero."""

from __future__ import annotations

from dataclasses import dataclass

from redrive.errors import InvalidInput
from redrive.kernel.task import check_text

MOST = 2**53  # also exact where numbers are floating; and what a thousand of them add up to can be counted


@dataclass(slots=True, frozen=True)
class Posting:
    """One movement of money: entries that add up to zero, applied at most once per ``key``."""

    key: str
    entries: tuple[tuple[str, int], ...]
    note: str | None = None

    def __post_init__(self) -> None:
        check_text(self.key or "", "the key of a posting")
        check_text(self.note, "the note of a posting")
        for account, amount in self.entries:
            check_text(account or "", "an account")
            if type(amount) is not int or abs(amount) >= MOST:
                raise InvalidInput(
                    f"an amount is a whole number below 2^53, not {_amount_text(amount)}",
                    hint="count in the smallest unit",
                )
        total = sum(amount for _, amount in self.entries)
        if total != 0 or not self.entries:
            raise InvalidInput(f"posting {self.key!r} does not add up: its entries sum to {total}, not 0")


def _amount_text(amount: object) -> str:
    """Returns an amount as it was given: one of its two entries has it with the other sign."""
    return str(abs(amount)) if type(amount) is int else repr(amount)
