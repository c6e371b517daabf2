"""The audit log sealed into a chain of hashes, and the search for what was tampered with.

Rows are sealed within five minutes after they were written, by maintenance: acting costs nothing more for it. Each
seal covers a stretch of rows and the seal before it: a row that is changed, removed or slipped in shows, and so does
another seal. What was pruned on purpose is accounted for by the summary that the prune left, or by its archive. Who can
rewrite the whole database can rewrite the whole chain: write the head down elsewhere, and compare.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from redrive.errors import ChangedMeanwhile, InvalidInput, StoreError
from redrive.kernel.audit import AuditFilter
from redrive.kernel.commit import Commit
from redrive.kernel.records import Put, Record
from redrive.kernel.store import Store
from redrive.kernel.task import AuditRow
from redrive.ops.audit import ANY, PRUNE_SUMMARY, ranges, row_hash

COLLECTION = "audit-seal"
STRETCH = 500
LAG, PATIENCE = timedelta(seconds=60), timedelta(minutes=4)
BEGINNING = "0" * 64
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError)


@dataclass(slots=True)
class Verdict:
    """``head`` is the hash of the last seal; ``problems`` is empty when all is well."""

    seals: int = 0
    rows: int = 0
    pruned: int = 0
    archived: int = 0  # of those that were pruned
    unsealed: int = 0
    head: str = BEGINNING
    problems: list[str] = field(default_factory=list)


async def seal(
    store: Store, stopping: Callable[[], bool] = lambda: False, lag: timedelta = LAG, patience: timedelta = PATIENCE
) -> int:
    """Seal what is old enough; answers how many rows. Fewer than a stretch wait for a while for more. Two who do so at
    once cannot both succeed with the same seal."""
    sealed = 0
    while not stopping():
        newest = await store.records(COLLECTION, limit=1)
        last = newest[0] if newest else None
        cutoff = await store.now() - lag
        rows = await store.audit(ANY, limit=STRETCH, after=last.body["last"] if last is not None else 0)
        # A row with a smaller number may still be on its way: stop at the first that is too young.
        young = next((nth for nth, row in enumerate(rows) if row.at >= cutoff), len(rows))
        rows = rows[:young]
        if not rows or (len(rows) < STRETCH and rows[0].at > cutoff - patience):
            break
        number = 1 if last is None else int(last.id) + 1
        body = _body(rows, last.body["hash"] if last is not None else BEGINNING)
        try:
            await store.apply(Commit(puts=[Put(COLLECTION, f"{number:012d}", body)]))
        except ChangedMeanwhile:
            break
        sealed += len(rows)
        if len(rows) < STRETCH:
            break
    return sealed


async def verify(
    store: Store, archived: Iterable[AuditRow] = (), head: str | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Verdict:  # fmt: skip
    """Walk the whole chain. ``archived``: rows of an archive, oldest first, which prove pruned stretches; ``head``: a
    hash that was written down earlier, and must still be part of the chain."""
    if head is not None and re.fullmatch(r"[0-9a-f]{64}", head) is None:
        raise InvalidInput(f"{head[:80]!r} is no head", hint="64 hexadecimal digits, as verify prints them")
    verdict = Verdict()
    gone = _Gone(archived)
    await gone.hear(store, verdict)
    previous, last, heads = BEGINNING, 0, {BEGINNING}
    for expected, record in enumerate(await _seals(store), 1):
        if int(record.id) != expected:
            verdict.problems.append(f"seal {expected} is missing: the next one is {int(record.id)}")
            break
        body = record.body
        try:
            fits = body["prev"] == previous and body["hash"] == _chained(body)
            wanted = parse_ranges(body["ids"])
            previous, before, last = str(body["hash"]), last, int(body["last"])
        except _MALFORMED:
            verdict.problems.append(f"seal {expected} cannot be read: it was rewritten")
            break
        if not fits:
            verdict.problems.append(
                f"seal {expected} (rows {body['ids']}) does not fit the one before it: it was rewritten"
            )
        gone.reach(last, verdict)
        await _check_rows(store, record, wanted, before, gone, verdict)
        heads.add(previous)
        verdict.seals += 1
        progress(len(wanted))
    verdict.head = previous
    verdict.unsealed = await _count_after(store, last)
    if head is not None and head not in heads:
        verdict.problems.append(
            "the head that was written down is not part of the chain: its end was cut off or rewritten"
        )
    return verdict


def _body(rows: Sequence[AuditRow], prev: str) -> dict[str, Any]:
    body = {
        "first": rows[0].id, "last": rows[-1].id, "count": len(rows), "ids": ranges([row.id for row in rows]),
        "digest": _digest([row_hash(row) for row in rows]), "prev": prev,
    }  # fmt: skip
    return {**body, "hash": _chained(body)}


def _digest(hashes: Iterable[str]) -> str:
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def _chained(body: Mapping[str, Any]) -> str:
    parts = [body["prev"], body["ids"], str(body["count"]), body["digest"]]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()


async def _check_rows(
    store: Store, record: Record, wanted: list[int], before: int, gone: _Gone, verdict: Verdict
) -> None:
    """The rows of one seal, and those between it and the seal ``before``: there must be none."""
    body, rows, after = record.body, dict[int, AuditRow](), before
    while page := await store.audit(ANY, limit=1000, after=after):
        rows |= {row.id: row for row in page if row.id <= body["last"]}
        after = page[-1].id
        if after >= body["last"]:
            break
    extra = sorted(set(rows) - set(wanted))
    if extra:
        verdict.problems.append(f"rows {ranges(extra)} were slipped in: they are not part of seal {int(record.id)}")
    missing = [number for number in wanted if number not in rows]
    if not all(gone.explains(number) for number in missing):
        await gone.hear(store, verdict)  # a prune may have taken them since we began
    unexplained = [number for number in missing if not gone.explains(number)]
    verdict.rows += len(wanted) - len(missing)
    verdict.pruned += len(missing) - len(unexplained)
    verdict.archived += sum(gone.keeps(number) for number in missing)
    if unexplained:
        verdict.problems.append(f"rows {ranges(unexplained)} are gone, and no prune says so")
        return
    hashes = [row_hash(rows[number]) if number in rows else gone.hash_of(number) for number in wanted]
    known = [value for value in hashes if value is not None]
    if len(known) == len(hashes):
        if _digest(known) != body["digest"]:
            verdict.problems.append(f"rows {body['ids']} are not what was sealed: at least one was changed")
    elif len(missing) < len(wanted):
        # A prune's summary is kept longer than the rows around it. Only where all of a seal's rows are long gone, its
        # hashes may be, too: then the seal alone speaks for them.
        verdict.problems.append(f"rows {body['ids']} cannot be proven: nobody kept the hashes of those that are gone")


async def _seals(store: Store) -> list[Record]:
    found: list[Record] = []
    before = None
    while page := await store.records(COLLECTION, limit=1000, before=before):
        found += page
        before = page[-1].seq
    return found[::-1]


async def _count_after(store: Store, last: int) -> int:
    count, after = 0, last
    while page := await store.audit(ANY, limit=1000, after=after):
        count += len(page)
        after = page[-1].id
    return count


def parse_ranges(text: str) -> list[int]:
    numbers: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        numbers += range(int(low), int(high or low) + 1)
    return numbers


class _Gone:
    """Rows that were pruned on purpose, with their hashes as far as somebody kept them. The archive is walked along
    with the chain: it may be larger than memory."""

    def __init__(self, archived: Iterable[AuditRow]) -> None:
        self._rest = iter(archived)
        self._next: AuditRow | None = None
        self._begun = False
        self._archived: dict[int, str] = {}
        self._hashes: dict[int, str] = {}
        self._through = 0
        self._heard: set[int] = set()

    async def hear(self, store: Store, verdict: Verdict) -> None:
        """What prunes have written down. From the beginning: one with a smaller number may have come late."""
        after = 0
        while page := await store.audit(AuditFilter(action=PRUNE_SUMMARY), limit=500, after=after):
            for row in page:
                if row.id not in self._heard:
                    self._heard.add(row.id)
                    self._take(row, verdict)
            after = page[-1].id

    def _take(self, row: AuditRow, verdict: Verdict) -> None:
        told = row.after if isinstance(row.after, dict) else {}
        try:
            ids = parse_ranges(told["ids"]) if told.get("ids") else []
            hashes = [str(value) for value in told.get("hashes") or []]
        except _MALFORMED:
            verdict.problems.append(f"row {row.id} tells of a prune in words that no prune writes")
            return
        if len(ids) != len(hashes):
            verdict.problems.append(f"row {row.id} tells of a prune of {len(ids)} rows, with {len(hashes)} hashes")
        self._hashes.update(zip(ids, hashes, strict=False))
        if told.get("everything"):
            self._through = max(self._through, max(ids, default=0))

    def reach(self, last: int, verdict: Verdict) -> None:
        """What the archive has up to this row; what came before was asked for already."""
        self._archived.clear()
        if not self._begun:
            self._advance(verdict)
        while self._next is not None and self._next.id <= last:
            self._archived[self._next.id] = row_hash(self._next)
            self._advance(verdict)

    def _advance(self, verdict: Verdict) -> None:
        self._begun = True
        try:
            self._next = next(self._rest, None)
        except StoreError as error:  # the rest of the archive cannot be read; the chain still can
            verdict.problems.append(error.message)
            self._next = None

    def keeps(self, number: int) -> bool:
        """In the archive."""
        return number in self._archived

    def explains(self, number: int) -> bool:
        # Retention takes everything up to some row; what it took earlier is gone together with its summaries.
        return number in self._archived or number in self._hashes or number <= self._through

    def hash_of(self, number: int) -> str | None:
        """The archive first: it is what the seal proves."""
        return self._archived.get(number) or self._hashes.get(number)
