"""Keeps what only later rows of the audit log explain: emptied rows, rows pruned unsealed, lost pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from redrive.ops.archive_walk import ArchiveWalk
from redrive.ops.audit_archive import Archive
from redrive.ops.audit_claims import Claim, Claims, told
from redrive.ops.audit_rows import ERASE_SUMMARY

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
            self._problem(f"rows {told(sorted(self._erased))} were emptied, and no sealed erasure says so")
        if self._extras:
            self._problem(f"rows {told(sorted(self._extras))} of the archive were never sealed: they were slipped in")


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
