"""Reads what sealed rows say about removals (prunes and erasures), believed only as far as their seals prove them."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Any

from redrive.kernel.audit import AuditFilter
from redrive.kernel.ports.store import Store
from redrive.kernel.task import AuditRow
from redrive.ops.audit_chain import Seal
from redrive.ops.audit_rows import (
    ERASE_SUMMARY,
    LARGEST_ROW_ID,
    SUMMARIES,
    digest_of,
    is_digest,
    parse_ranges,
    ranges,
    row_hash,
)

CLAIMS_REMEMBERED = 16  # parsed claims; the others are read again when they are asked for
MALFORMED_CLAIM = (KeyError, TypeError, ValueError, AttributeError)


@dataclass(slots=True)
class Claim:
    """What a row says about a removal. ``hashes``: of the rows that were pruned, by their numbers; empty for an
    erasure, which has ``ids`` only."""

    row: int
    action: str
    actor: str
    at: datetime
    bulk_id: str | None
    ids: list[int]
    hashes: dict[int, str] = field(default_factory=dict)
    youngest: datetime | None = None
    older_than: datetime | None = None
    everything: bool = False
    piece: tuple[str, str] | None = None
    replaced: dict[str, str | None] = field(default_factory=dict)  # pieces of the archive, and what took their place

    @classmethod
    def of(cls, row: AuditRow) -> Claim:
        """Makes a claim of a row; ValueError and the like for words that no removal writes."""
        told = row.after
        if not isinstance(told, dict):
            raise ValueError("it says nothing")
        ids = parse_ranges(told["ids"]) if told.get("ids") else []
        made = cls(row.id, row.action, row.actor, row.at, row.bulk_id, ids)
        if row.action == ERASE_SUMMARY:
            made.replaced = {
                str(old): None if new is None else str(new) for old, new in dict(told.get("replaced") or {}).items()
            }
            return made
        hashes = told["hashes"]
        if len(ids) != len(hashes):
            raise ValueError(f"it tells of {len(ids)} rows, with {len(hashes)} hashes")
        if not all(map(is_digest, hashes)):
            raise ValueError("its hashes are none")
        made.hashes, made.everything = dict(zip(ids, hashes, strict=True)), told.get("everything") is True
        made.youngest = _time(told["youngest"])
        made.older_than = _time(told["older_than"])
        piece = told.get("piece")
        made.piece = None if piece is None else (str(piece["name"]), str(piece["sha256"]))
        return made


@dataclass(slots=True)
class Removal:
    """One prune or erasure, with all of its pieces. ``youngest``: the latest that a row it took can have been written,
    by what the seals prove."""

    action: str
    actor: str
    at: datetime
    bulk_id: str | None
    rows: int = 0
    youngest: datetime | None = None


class Claims:
    """The removals that are proven, in little memory: of each its place; what it says is read again when it is
    needed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._spans: dict[int, tuple[int, int, str]] = {}  # row: first and last number, digest of its seal
        self._order: list[tuple[int, int, int]] | None = None  # the spans by where they begin, with their rows
        self._reach: list[int] = []  # how far those up to here reach
        self._parsed: OrderedDict[int, Claim] = OrderedDict()
        self.removals: dict[tuple[str, str, str | None], Removal] = {}  # by action, actor and bulk id
        self.through = 0  # retention took everything up to here
        self.replaced: dict[str, str | None] = {}
        self.pieces: list[tuple[int, str, str]] = []
        self.malformed: dict[int, str] = {}

    def __contains__(self, row: int) -> bool:
        return row in self._spans or row in self.malformed

    def learn(self, row: AuditRow, seal: Seal) -> None:
        """Takes in a row that was sealed by itself; a row that is not what was sealed is ignored."""
        if row.action not in SUMMARIES or digest_of([row_hash(row)]) != seal.digest:
            return
        try:
            claim = Claim.of(row)
        except MALFORMED_CLAIM as error:
            self.malformed[row.id] = str(error) if isinstance(error, ValueError) else "in words that no removal writes"
            return
        self._order = None
        self._spans[row.id] = (claim.ids[0], claim.ids[-1], seal.digest) if claim.ids else (0, 0, seal.digest)
        self._remember(claim)
        key = (claim.action, claim.actor, claim.bulk_id)
        removal = self.removals.setdefault(key, Removal(*key[:2], claim.at, claim.bulk_id))
        removal.rows, removal.at = removal.rows + len(claim.ids), max(removal.at, claim.at)
        if claim.youngest is not None:
            removal.youngest = max(claim.youngest, removal.youngest or claim.youngest)
        if claim.everything:
            self.through = max(self.through, max(claim.ids, default=0))
        if claim.piece is not None:
            self.pieces.append((row.id, *claim.piece))
        self.replaced |= claim.replaced

    async def about(self, first: int, last: int) -> list[Claim]:
        """Returns claims that tell of rows in this stretch."""
        return [claim for row in self._overlapping(first, last) if (claim := await self._claim(row)) is not None]

    def _overlapping(self, first: int, last: int) -> list[int]:
        """Returns rows whose spans meet this one, without looking at all: from the last that begins in time, back to
        where none before it reaches so far."""
        if self._order is None:
            self._order = sorted((low, high, row) for row, (low, high, _) in self._spans.items())
            self._reach = list(accumulate((high for _, high, _ in self._order), max))
        found: list[int] = []
        place = bisect_right(self._order, (last, LARGEST_ROW_ID, LARGEST_ROW_ID)) - 1
        while place >= 0 and self._reach[place] >= first:
            _, high, row = self._order[place]
            if high >= first:
                found.append(row)
            place -= 1
        return sorted(found)

    def raise_youngest(self, claim: Claim, at: datetime) -> None:
        """Notes that the seals prove a removal to have taken a row of this age."""
        removal = self.removals[claim.action, claim.actor, claim.bulk_id]
        removal.youngest = max(at, removal.youngest or at)

    async def _claim(self, row: int) -> Claim | None:
        if row in self._parsed:
            self._parsed.move_to_end(row)
            return self._parsed[row]
        found = await self._store.audit(AuditFilter(), limit=1, after=row - 1)
        if not found or found[0].id != row or digest_of([row_hash(found[0])]) != self._spans[row][2]:
            return None  # pruned meanwhile, or changed: what it said is no longer proven
        return self._remember(Claim.of(found[0]))

    def _remember(self, claim: Claim) -> Claim:
        self._parsed[claim.row] = claim
        while len(self._parsed) > CLAIMS_REMEMBERED:
            self._parsed.popitem(last=False)
        return claim


async def unproven(store: Store, claims: Claims) -> list[int]:
    """Returns rows that tell of a removal and were not sealed with it: no removal has written them."""
    found: list[int] = []
    for action in SUMMARIES:
        after = 0
        while len(found) < 1000 and (page := await store.audit(AuditFilter(action=action), limit=200, after=after)):
            found += [row.id for row in page if row.id not in claims]
            after = page[-1].id
    return sorted(found)


def told(numbers: list[int], most: int = 40) -> str:
    """Returns numbers as ranges, cut where nobody would read on."""
    text = ranges(numbers[:1000])
    parts = text.split(",")
    cut = len(parts) > most or len(numbers) > 1000
    return ",".join(parts[:most]) + (f" and more, {len(numbers)} in all" if cut else "")


def _time(text: Any) -> datetime:
    found = datetime.fromisoformat(str(text))
    if found.tzinfo is None:
        raise ValueError("a time without a zone")
    return found
