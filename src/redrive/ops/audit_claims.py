"""Reads what sealed rows say about removals (prunes and erasures), believed only as far as their seals prove them, and
the archive in step with them."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Any

from redrive.errors import StoreError
from redrive.kernel.audit import AuditFilter
from redrive.kernel.ports.store import Store
from redrive.kernel.task import AuditRow
from redrive.ops.audit_archive import Archive
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


def ranges_text(numbers: list[int], most: int = 40) -> str:
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


# -- the archive, in step with the chain of the audit log --------------------------------------------------------------


class ArchiveWalk:
    """A position in the archive. ``heard`` and ``erased``: what the rows of the last stretch told of removals, and
    which of them are emptied."""

    def __init__(self, archive: Archive | None, problem: Callable[[str], None]) -> None:
        rows = () if archive is None else archive.read(on_damage=lambda error: problem(error.message))
        self._rows: Iterator[AuditRow] = iter(rows)
        self._problem = problem
        self._next: AuditRow | None = None
        self._begun = False
        self.heard: list[Claim] = []
        self.erased: list[int] = []

    def rows_up_to(self, last: int | None) -> dict[int, set[str]]:
        """Returns hashes of the rows up to this one, from where the last call ended; of a number in more than one
        version all of them."""
        found: dict[int, set[str]] = {}
        self.heard, self.erased = [], []
        if not self._begun:
            self._advance()
        while self._next is not None and (last is None or self._next.id <= last):
            found.setdefault(self._next.id, set()).add(row_hash(self._next))
            self._hear(self._next)
            self._advance()
            if last is None and len(found) >= 1000:
                break
        return found

    def _hear(self, row: AuditRow) -> None:
        if row.erased is not None:
            self.erased.append(row.id)
        if row.action in SUMMARIES:
            with contextlib.suppress(*MALFORMED_CLAIM):  # whether it is what was sealed is seen elsewhere
                self.heard.append(Claim.of(row))

    def _advance(self) -> None:
        self._begun = True
        try:
            self._next = next(self._rows, None)
        except StoreError as error:  # the rest of the archive cannot be read; the chain still can
            self._problem(error.message)
            self._next = None


# -- what only later rows of the audit log explain ---------------------------------------------------------------------


MOST_UNEXPLAINED_ROWS = 1_000_000
FORGED_ROW = "row {} in the archive is not the one that was removed: it was forged or mixed up"


class Unexplained:
    """``erased``: rows whose erasure was not told of yet. ``extras``: rows of the archive that no stretch knows, with
    the hashes of their versions: they were pruned before they were sealed, or never written by us."""

    def __init__(self, problem: Callable[[str], None]) -> None:
        self._problem = problem
        self._erased: set[int] = set()
        self._extras: dict[int, set[str]] = {}
        self.erased = 0

    def emptied(self, number: int) -> None:
        self.erased += number not in self._erased
        if len(self._erased) < MOST_UNEXPLAINED_ROWS:
            self._erased.add(number)

    def unknown(self, number: int, versions: set[str], claims: Iterable[Claim] = ()) -> None:
        said = {claim.hashes[number] for claim in claims if number in claim.hashes}
        if not said and len(self._extras) < MOST_UNEXPLAINED_ROWS:
            self._extras[number] = versions
        elif versions - said:
            self._problem(FORGED_ROW.format(number))

    def hear(self, walk: ArchiveWalk, claims: Claims) -> None:
        """Takes in removals that archived rows tell of; they explain earlier rows. If such a row was forged, that is a
        problem of its own: it is compared with the seals like all others."""
        for number in walk.erased:
            self.emptied(number)
        for claim in walk.heard:
            claims.replaced |= claim.replaced
            if claim.action == ERASE_SUMMARY:
                self._erased.difference_update(claim.ids)
            for number in claim.hashes.keys() & self._extras.keys():
                if not self._extras[number] - {claim.hashes[number]}:
                    del self._extras[number]

    async def resolve(self, claims: Claims) -> None:
        """Reports what is left when everything was heard: it was tampered with."""
        for low, high in _blocks(self._erased):
            for claim in await claims.about(low, high):
                if claim.action == ERASE_SUMMARY:
                    self._erased.difference_update(claim.ids)
        for number in sorted(self._extras):
            said = {claim.hashes[number] for claim in await claims.about(number, number) if number in claim.hashes}
            if said and not self._extras[number] - said:
                del self._extras[number]
        if self._erased:
            self._problem(f"rows {ranges_text(sorted(self._erased))} were emptied, and no sealed erasure says so")
        if self._extras:
            self._problem(
                f"rows {ranges_text(sorted(self._extras))} of the archive were never sealed: they were slipped in"
            )


def check_pieces(archive: Archive, claims: Claims, problem: Callable[[str], None]) -> None:
    """Checks that each piece that a prune has written down is there, or was replaced by an erasure."""
    names = set(archive.names())
    for old in claims.replaced.keys() & names:
        if claims.replaced[old] != old:
            problem(f"{old} is in the archive still, although it was erased: erase it again")
    for row, name, _ in claims.pieces:
        last = _replacement(name, claims.replaced)
        if last is not None and last not in names:
            problem(f"{last} is missing from the archive: row {row} says that it was written")


def _replacement(name: str, replaced: dict[str, str | None]) -> str | None:
    """Returns the piece that stands for this one now, after any number of erasures; None: nothing."""
    seen: set[str] = set()
    found: str | None = name
    while found in replaced and found not in seen:
        seen.add(found)
        found = replaced[found]
    return found


def _blocks(numbers: Iterable[int], width: int = 1000) -> Iterator[tuple[int, int]]:
    ordered = sorted(numbers)
    for start in range(0, len(ordered), width):
        part = ordered[start : start + width]
        yield part[0], part[-1]
