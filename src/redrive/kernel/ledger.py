"""Postings: movements of money between accounts that add up to zero."""

from __future__ import annotations

from dataclasses import dataclass

from redrive.errors import InvalidInput


@dataclass(slots=True, frozen=True)
class Posting:
    """One movement of money: entries that add up to zero, applied at most once per ``key``."""

    key: str
    entries: tuple[tuple[str, int], ...]
    note: str | None = None

    def __post_init__(self) -> None:
        total = sum(amount for _, amount in self.entries)
        if total != 0 or not self.entries:
            raise InvalidInput(f"posting {self.key!r} does not add up: its entries sum to {total}, not 0")
