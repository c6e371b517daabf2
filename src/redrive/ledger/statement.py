"""Statements: the movements of an account with what it had after each, in pages and as CSV.

A movement is one posting, with what it did to both sides of the account. Entries have places; in their order no side
was ever below zero. A page is continued by a place and what the sides had there, so that no page adds up what came
before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Annotated, Any

from redrive.feature import Closed, InvalidInput, Open, Store
from redrive.kernel.microseconds import to_datetime
from redrive.ledger.accounts import micros
from redrive.ledger.movements import MovementKind
from redrive.ops.csv_lines import csv_line
from redrive.ops.operator.declared import seen
from redrive.ops.views import Sight

LAST = 2**63 - 1  # behind every place
PIECE = 500  # movements that are read at once for an export
OTHER = "posting"  # the kind of what was posted without the ledger
HEAD = ("time", "kind", "key", "reference", "reason", "available", "frozen", "available_after", "frozen_after")


@dataclass(slots=True, frozen=True)
class Place:
    """A place in the books, and what the sides of an account had there."""

    id: int
    available: int
    frozen: int

    def __str__(self) -> str:
        return f"{self.id}.{self.available}.{self.frozen}"


def _change_of(side: str) -> Callable[[Line, datetime], str]:
    return lambda one, _: f"{getattr(one, side):+}"


def _at(one: Line, _: datetime) -> str:
    return f"{one.at:%F %T}"


@dataclass(slots=True, frozen=True)
class Line:
    """One movement: what it did to both sides, and what they had afterwards."""

    at: Annotated[datetime, Open(column="when", cell=_at)]
    kind: Annotated[str, Open(column="kind")]
    key: Annotated[str | None, Closed("For operators.")]
    available: Annotated[int, Open(column="available", cell=_change_of("available"), number=True)]
    frozen: Annotated[int, Open(column="frozen", cell=_change_of("frozen"), number=True)]
    available_after: Annotated[
        int | None, Open("Null where only movements for one thing are looked at.", column="available after")
    ]
    frozen_after: Annotated[int | None, Open(column="frozen after")]
    reference: Annotated[str | None, Open("What it is for.", column="reference")]
    reason: Annotated[str | None, Closed("What somebody wrote for it, which may name a person.", column="reason")]

    @property
    def movement(self) -> Annotated[str | None, Closed("How the books name it.", column="movement")]:
        if self.key is None or self.kind == OTHER:
            return self.key
        return MovementKind(self.kind).name_of(self.key)


Lines = tuple[list[Line], str | None]  # a page of movements, and how it is continued


def parse_place(text: str) -> Place:
    """Returns the place that a page was told to continue with."""
    try:
        number, available, frozen = map(int, text.split("."))
    except ValueError:
        raise InvalidInput(f"{text[:60]!r} is no place in a statement", hint="take it from next of a page") from None
    if not 0 <= number <= LAST or max(abs(available), abs(frozen)) > LAST:
        raise InvalidInput(f"{text[:60]!r} is no place in a statement", hint="take it from next of a page")
    return Place(number, available, frozen)


async def page(store: Store, account: str, before: Place | None, limit: int) -> Lines:
    """Returns movements before a place, the latest first."""
    wanted = 2 * limit + 2  # a movement is an entry on each side, at most, unless somebody wrote it by hand
    rows = await store.sql.feature_rows("ledger", "entries", account, before.id if before else LAST, wanted)
    if not rows:
        return [], None
    at = before or Place(LAST, rows[0]["available"], rows[0]["frozen"])
    groups, more = _whole(rows, len(rows) == wanted)
    lines = []
    for group in groups[:limit]:
        lines.append(_line(group, at.available, at.frozen))
        at = Place(group[-1]["id"], at.available - lines[-1].available, at.frozen - lines[-1].frozen)
    return lines, str(at) if more or len(groups) > limit else None


async def of_reference(store: Store, account: str, reference: str, limit: int) -> Lines:
    """Returns the latest movements that are for one thing. What the sides had afterwards is not added up for them."""
    rows = await store.sql.feature_rows("ledger", "entries_for", account, reference, 2 * limit)
    return [_line(group, None, None) for group in _whole(rows, False)[0]][:limit], None


async def export(
    store: Store, account: str, since: datetime | None, until: datetime | None, sight: Sight
) -> AsyncIterator[str]:
    """Yields the lines of a CSV, the oldest movement first, a piece at a time."""
    yield csv_line(HEAD)
    async for line in _forward(store, account, since):
        line = seen(line, sight)
        if until is not None and line.at >= until:
            return
        yield csv_line(
            (
                *(line.at.isoformat().replace("+00:00", "Z"), line.kind, line.key, line.reference, line.reason),
                *(line.available, line.frozen, line.available_after, line.frozen_after),
            )
        )


async def place_at(store: Store, account: str, when: datetime) -> Place:
    """Returns what the sides of an account had at a time."""
    [row] = await store.sql.feature_rows("ledger", "balance_at", account, micros(when))
    return Place(row["place"], row["available"], row["frozen"])


async def _forward(store: Store, account: str, since: datetime | None) -> AsyncIterator[Line]:
    at = Place(0, 0, 0) if since is None else await place_at(store, account, since - timedelta(microseconds=1))
    more = True
    while more:
        wanted = 2 * PIECE + 2
        rows = await store.sql.feature_rows("ledger", "entries_after", account, at.id, wanted)
        groups, more = _whole(rows, len(rows) == wanted)
        for group in groups:
            change = _change(group)
            at = Place(group[-1]["id"], at.available + change[0], at.frozen + change[1])
            yield _line(group, at.available, at.frozen)


def _whole(rows: Sequence[Mapping[str, Any]], cut: bool) -> tuple[list[list[Mapping[str, Any]]], bool]:
    """Returns entries by their postings, without the last one where a part of it may be missing."""
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row["posting"])]
    return (groups[:-1] if cut and len(groups) > 1 else groups), cut


def _change(group: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    sides = {"available": 0, "frozen": 0}
    for row in group:
        sides[row["side"]] += row["amount"]
    return sides["available"], sides["frozen"]


def _line(group: Sequence[Mapping[str, Any]], available_after: int | None, frozen_after: int | None) -> Line:
    first, (available, frozen) = group[0], _change(group)
    kind, _, key = first["posting"].partition(":")
    kind, key = (kind, key) if kind in list(MovementKind) else (OTHER, first["posting"])
    return Line(
        to_datetime(first["at"]),
        kind,
        key,
        available,
        frozen,
        available_after,
        frozen_after,
        first["reference"],
        first["note"],
    )
