"""Searches for tampering in the audit log: compares rows, seals, prunes, erasures and the archive with each other.

Only what is sealed is believed. Memory does not grow with the log: seals are walked twice, first for what was removed
on purpose and says so in a sealed row, then for the rows themselves, along with the archive.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from redrive.errors import InvalidInput, StoreError, StoreUnavailable, StoreUnusable
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Record
from redrive.kernel.task import AuditRow
from redrive.ops import audit_chain
from redrive.ops.audit import EVERY_ROW, RETENTION_ACTOR
from redrive.ops.audit_archive import Archive
from redrive.ops.audit_chain import CHAIN_START, OVERDUE, Seal
from redrive.ops.audit_claims import (
    FORGED_ROW,
    ArchiveWalk,
    Claim,
    Claims,
    Removal,
    Unexplained,
    check_pieces,
    ranges_text,
    unproven,
)
from redrive.ops.audit_rows import PRUNE_SUMMARY, digest_of, row_hash

MOST_PROBLEMS = 200
_UNREADABLE = (ValueError, TypeError, OverflowError, RecursionError, KeyError)


@dataclass(slots=True)
class Verdict:
    """``head`` is the hash of the last seal; ``problems`` is empty when all is well. ``removals`` names every prune and
    erasure that the log still tells of."""

    seals: int = 0
    rows: int = 0
    pruned: int = 0  # of the rows that were sealed
    pruned_unsealed: int = 0  # before they were, as the log still tells
    archived: int = 0  # of those that were pruned
    erased: int = 0
    unsealed: int = 0
    unsealed_since: datetime | None = None  # the oldest of them, when it should have been sealed by now
    head: str = CHAIN_START
    problems: list[str] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)

    def problem(self, text: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(text)
        elif len(self.problems) == MOST_PROBLEMS:
            self.problems.append("and more: only the first problems are listed")


async def verify(
    store: Store,
    archive: Archive | None = None,
    head: str | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Verdict:
    """Walks the whole chain. ``archive`` proves pruned stretches, and is compared with the hashes that prunes left;
    ``head``: a hash that was written down earlier, and must still be part of the chain."""
    if head is not None and re.fullmatch(r"[0-9a-f]{64}", head) is None:
        raise InvalidInput(f"{head[:80]!r} is no head", hint="64 hexadecimal digits, as verify prints them")
    verifier = _Verifier(store, archive, progress)
    try:
        await verifier.walk(head)
    except (StoreUnavailable, StoreUnusable):
        raise
    except (StoreError, *_UNREADABLE) as error:
        verifier.verdict.problem(f"rows cannot be read, because they are none that redrive writes: {str(error)[:200]}")
    verdict = verifier.verdict
    verdict.removals = list(verifier.claims.removals.values())
    told = sum(removal.rows for removal in verdict.removals if removal.action == PRUNE_SUMMARY)
    verdict.pruned_unsealed = max(told - verdict.pruned, 0)
    return verdict


class _Verifier:
    def __init__(self, store: Store, archive: Archive | None, progress: Callable[[int], None]) -> None:
        self.store = store
        self.archive = archive
        self.progress = progress
        self.verdict = Verdict()
        self.claims = Claims(store)
        self.archive_walk = ArchiveWalk(archive, self.verdict.problem)
        self.head_seen = False
        self.head: str | None = None
        self.chain_end = 0
        self.chain_last = 0
        self.previous = CHAIN_START
        self.broken = False
        self.ahead: dict[int, Seal] = {}  # sealed by themselves; the stretch that covers them comes later
        self.unexplained = Unexplained(self.verdict.problem)

    async def walk(self, head: str | None) -> None:
        self.head, self.head_seen = head, head in (None, CHAIN_START)
        await self.learn()
        before, number = 0, 0
        async for record in audit_chain.seals(self.store):
            number += 1
            if number > self.chain_end:
                break
            seal = Seal.of(record)
            if seal.ahead:
                self.ahead |= dict.fromkeys(seal.wanted, seal)
            else:
                await self._stretch(seal, before)
                before = seal.last
            self.verdict.seals += 1
            self.progress(len(seal.wanted))
        await self._rest(before)
        self.verdict.head = self.previous
        if not self.head_seen:
            self.verdict.problem(
                "the head that was written down is not part of the chain: its end was cut off or rewritten"
            )

    # -- the chain, and what it says about removals ----------------------------------------------------------------

    async def learn(self) -> None:
        """Check the links from where the last look ended, and hear of the removals that they seal."""
        oldest = await self.store.audit(EVERY_ROW, limit=1, after=0)
        async for record in audit_chain.seals(self.store, self.chain_end):
            if self.broken or not await self._link(record, oldest[0].id if oldest else 0):
                return
        gap = await audit_chain.beyond(self.store, self.chain_end)
        if gap is not None and not self.broken and not await self._came_meanwhile():
            self.broken = True
            self.verdict.problem(f"seal {self.chain_end + 1} is missing: the next one is {gap}")

    async def _came_meanwhile(self) -> bool:
        async for _ in audit_chain.seals(self.store, self.chain_end):
            return True
        return False

    async def _link(self, record: Record, oldest: int) -> bool:
        number = self.chain_end + 1
        try:
            seal = Seal.of(record)
        except _UNREADABLE:
            self.broken = True
            self.verdict.problem(f"seal {number} cannot be read: it was rewritten")
            return False
        fits = seal.prev == self.previous and seal.hash == seal.proven
        low, high = seal.wanted[0], seal.wanted[-1]
        places = seal.last == self.chain_last < low if seal.ahead else self.chain_last < low <= high == seal.last
        if not fits or not places:
            self.verdict.problem(
                f"seal {number} (rows {seal.ids[:80]}) does not fit the one before it: it was rewritten"
            )
        self.chain_end, self.chain_last, self.previous = number, max(seal.last, self.chain_last), seal.hash
        self.head_seen = self.head_seen or seal.hash == self.head
        if seal.ahead and high >= oldest:
            for row in await self.store.audit(EVERY_ROW, limit=len(seal.wanted), after=low - 1):
                if row.id in seal.wanted:
                    self.claims.learn(row, seal)
        return True

    # -- rows ------------------------------------------------------------------------------------------------------

    async def _stretch(self, seal: Seal, before: int) -> None:
        """The rows of one seal, and those between it and the seal before: there must be none."""
        wanted = set(seal.wanted)
        present, extra = await self._present(wanted, before, seal.last)
        if extra:
            self.verdict.problem(f"rows {ranges_text(extra)} were slipped in: they are not part of seal {seal.number}")
        kept = self.archive_walk.rows_up_to(seal.last)
        claims = await self._claims(seal, present, kept)
        for number in [number for number in kept if number not in wanted]:
            self.unexplained.unknown(number, kept.pop(number), claims)
        hashes = {
            number: found
            for number in seal.wanted
            if (found := self._hash(number, present, kept.get(number, set()), claims)) is not None
        }
        self._judge(seal, present, kept, hashes, claims)
        self._check_ages(seal, claims, set(present))
        self._check_ahead(seal.last, hashes)
        self.unexplained.hear(self.archive_walk, self.claims)

    async def _present(self, wanted: set[int], before: int, last: int) -> tuple[dict[int, str], list[int]]:
        """Hashes of the rows that are there, and the numbers of those that should not be."""
        present: dict[int, str] = {}
        extra: list[int] = []
        after = before
        while after < last and (page := await self.store.audit(EVERY_ROW, limit=500, after=after)):
            for row in page:
                if row.id > last:
                    return present, extra
                if row.id in wanted:
                    present[row.id] = row_hash(row)
                    self._note(row)
                elif len(extra) < 100_000:
                    extra.append(row.id)
            after = page[-1].id
        return present, extra

    async def _claims(self, seal: Seal, present: dict[int, str], kept: dict[int, set[str]]) -> list[Claim]:
        first, last = seal.wanted[0], seal.wanted[-1]
        claims = await self.claims.about(first, last)
        said = {number for claim in claims for number in claim.hashes}
        if any(number not in present and number not in said and number not in kept for number in seal.wanted):
            await self.learn()  # a prune may have taken them since we began
            claims = await self.claims.about(first, last)
        return claims

    def _hash(self, number: int, present: dict[int, str], kept: set[str], claims: list[Claim]) -> str | None:
        said = next((claim.hashes[number] for claim in claims if number in claim.hashes), None)
        sure = present.get(number) or said
        if sure is not None and kept - {sure}:
            self.verdict.problem(FORGED_ROW.format(number))
        if sure is None and len(kept) > 1:
            self.verdict.problem(f"row {number} is in the archive in {len(kept)} versions, and none is proven")
        return sure or next(iter(kept), None)

    def _judge(
        self,
        seal: Seal,
        present: dict[int, str],
        kept: dict[int, set[str]],
        hashes: dict[int, str],
        claims: list[Claim],
    ) -> None:
        missing = [number for number in seal.wanted if number not in present]
        gone = [number for number in missing if number not in hashes and number > self.claims.through]
        self.verdict.rows += len(present)
        self.verdict.pruned += len(missing) - len(gone)
        self.verdict.archived += sum(number in kept for number in missing)
        if gone:
            self.verdict.problem(f"rows {ranges_text(gone)} are gone, and no sealed prune says so")
        elif len(hashes) == len(seal.wanted):
            if digest_of(hashes[number] for number in seal.wanted) != seal.digest:
                self.verdict.problem(f"rows {seal.ids} are not what was sealed: at least one was changed")
        elif len(missing) < len(seal.wanted) or any(number in kept for number in seal.wanted):
            # A prune's summary is kept longer than the rows around it. Only where all of a seal's rows are long gone,
            # its hashes may be, too: then the seal alone speaks for them. A row that is left cannot be proven by it.
            self.verdict.problem(f"rows {seal.ids} cannot be proven: nobody kept the hashes of those that are gone")

    def _check_ages(self, seal: Seal, claims: list[Claim], present: set[int]) -> None:
        """A prune must not have taken what was younger than it says: the seal knows when its rows were written."""
        wanted = set(seal.wanted)
        for claim in claims:
            if claim.action != PRUNE_SUMMARY or wanted.isdisjoint(claim.hashes):
                continue
            self.claims.raise_youngest(claim, seal.since)
            if (claim.youngest or seal.since) < seal.since or (claim.older_than or seal.since) < seal.since:
                self.verdict.problem(
                    f"row {claim.row}, a prune by {claim.actor}, took rows of {seal.since.isoformat()} or later, which"
                    " is younger than it says"
                )

    def _check_ahead(self, last: int, hashes: dict[int, str]) -> None:
        """Rows that were sealed by themselves are the same in their stretch."""
        due: dict[int, Seal] = {number: seal for number, seal in self.ahead.items() if number <= last}
        for number in due:
            del self.ahead[number]
        for seal in {seal.number: seal for seal in due.values()}.values():
            known = [hashes[number] for number in seal.wanted if number in hashes]
            if known and len(known) == len(seal.wanted) and digest_of(known) != seal.digest:
                self.verdict.problem(f"rows {seal.ids} are not what was sealed with them: at least one was changed")

    # -- what the seals do not reach yet, and the archive ----------------------------------------------------------

    async def _rest(self, last: int) -> None:
        after, hashes, now = last, dict[int, str](), await self.store.now()
        while page := await self.store.audit(EVERY_ROW, limit=500, after=after):
            self.verdict.unsealed += len(page)
            after = page[-1].id
            for row in page:
                self._note(row)
                self._overdue(row, now)
                if row.id in self.ahead:
                    hashes[row.id] = row_hash(row)
            kept = self.archive_walk.rows_up_to(after)
            present = {row.id: row_hash(row) for row in page if row.id in kept}
            for number, found in kept.items():
                self._compare(number, found, present)
            self.unexplained.hear(self.archive_walk, self.claims)
        while kept := self.archive_walk.rows_up_to(None):
            for number, found in kept.items():
                self._compare(number, found, {})
            self.unexplained.hear(self.archive_walk, self.claims)
        await self._missing_ahead(hashes)
        await self._resolve()

    def _overdue(self, row: AuditRow, now: datetime) -> None:
        oldest = self.verdict.unsealed_since
        if now - row.at > OVERDUE and (oldest is None or row.at < oldest):
            self.verdict.unsealed_since = row.at

    def _compare(self, number: int, found: set[str], present: dict[int, str]) -> None:
        if number in present and found - {present[number]}:
            self.verdict.problem(f"row {number} in the archive is not the one in the store: it was forged or mixed up")
        elif number not in present:
            self.unexplained.unknown(number, found, [])

    async def _missing_ahead(self, hashes: dict[int, str]) -> None:
        for number, seal in list(self.ahead.items()):
            found = hashes.get(number)
            if found is None:
                claims = await self.claims.about(number, number)
                found = next((claim.hashes[number] for claim in claims if number in claim.hashes), None)
            if found is None and number > self.claims.through:
                self.verdict.problem(f"row {number}, which tells of a removal, is gone, and no sealed prune says so")
            elif found is not None and len(seal.wanted) == 1 and digest_of([found]) != seal.digest:
                self.verdict.problem(f"rows {seal.ids} are not what was sealed with them: at least one was changed")

    async def _resolve(self) -> None:
        """Summaries that no removal wrote, and what only later rows explain."""
        forged = await unproven(self.store, self.claims)
        if forged:
            await self.learn()
            forged = [number for number in forged if number not in self.claims]
        if forged:
            self.verdict.problem(
                f"rows {ranges_text(forged)} tell of removals, and were not sealed with them: they were slipped in"
            )
        for number, why in self.claims.malformed.items():
            self.verdict.problem(f"row {number} tells of a removal, but {why}")
        await self.unexplained.resolve(self.claims)
        self.verdict.erased = self.unexplained.erased
        if self.archive is not None:
            check_pieces(self.archive, self.claims, self.verdict.problem)

    def _note(self, row: AuditRow) -> None:
        if row.erased is not None:
            self.unexplained.emptied(row.id)


def younger_than(removal: Removal, days: float) -> bool:
    """Returns whether retention took rows before their time, by the days that are set now."""
    return (
        removal.actor == RETENTION_ACTOR
        and removal.youngest is not None
        and removal.at - removal.youngest < timedelta(days=days)
    )
