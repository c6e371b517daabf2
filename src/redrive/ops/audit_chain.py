"""Seals the audit log into a chain of hashes.

Rows are sealed within five minutes after they were written, by maintenance: acting costs nothing more for it. Each seal
covers a stretch of rows and the seal before it. What a removal (a prune, an erasure) says about itself is sealed in the
transaction of the removal, ahead of the rows around it: so a removal that is not sealed is none. ``audit_verify``
searches for what was tampered with. Who can rewrite the whole database can rewrite the whole chain: write the head down
elsewhere, and compare.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from redrive.errors import ChangedMeanwhile, StoreError, StoreUnavailable
from redrive.kernel.applied import Applied
from redrive.kernel.audit import AuditFilter
from redrive.kernel.commit import Commit
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put, Record
from redrive.kernel.task import AuditRow
from redrive.ops.audit_rows import LARGEST_ROW_ID, canonical, digest_of, ids_of, is_digest, parse_ranges, row_hash

COLLECTION = "audit-seal"
ROWS_PER_SEAL = 500
SEALS_PER_PAGE = 200
SEAL_TRIES = 50
SEAL_LAG, WAIT_FOR_FULL_SEAL = timedelta(seconds=60), timedelta(minutes=4)
OVERDUE = timedelta(minutes=10)
CHAIN_START = "0" * 64
_FIELDS = ("last", "ids", "digest", "prev", "since", "until", "ahead")


@dataclass(slots=True, frozen=True)
class Seal:
    """``last``: every row up to it is covered by this seal or an earlier one. ``since`` and ``until`` are the times of
    its oldest and youngest row. ``ahead``: of rows beyond ``last``, which a stretch will cover again."""

    number: int
    last: int
    ids: str
    wanted: tuple[int, ...]
    digest: str
    prev: str
    since: datetime
    until: datetime
    ahead: bool
    hash: str
    proven: str  # what the hash should be

    @classmethod
    def of(cls, record: Record) -> Seal:
        """Makes a seal of its document; ValueError when that was rewritten into something else."""
        body = record.body
        if not isinstance(body, dict) or any(name not in body for name in (*_FIELDS, "hash")):
            raise ValueError("no seal")
        last, digests = body["last"], [body["digest"], body["prev"], body["hash"]]
        if type(last) is not int or not 0 <= last <= LARGEST_ROW_ID or not all(map(is_digest, digests)):
            raise ValueError("no seal")
        if not isinstance(body["ahead"], bool):
            raise ValueError("no seal")
        since, until = (datetime.fromisoformat(str(body[name])) for name in ("since", "until"))
        if since.tzinfo is None or until.tzinfo is None:
            raise ValueError("times without a zone")
        return cls(
            _number(record),
            last,
            body["ids"],
            tuple(parse_ranges(body["ids"])),
            body["digest"],
            body["prev"],
            since,
            until,
            body["ahead"],
            body["hash"],
            _chained(body),
        )


async def seal(
    store: Store,
    stopping: Callable[[], bool] = lambda: False,
    lag: timedelta = SEAL_LAG,
    patience: timedelta = WAIT_FOR_FULL_SEAL,
) -> int:
    """Seals what is old enough; returns how many rows. Fewer than a stretch wait for a while for more. Two who do so at
    once cannot both succeed with the same seal."""
    sealed = 0
    while not stopping():
        previous = await last_seal(store)
        now = await store.now()
        rows = await store.audit(AuditFilter(), limit=ROWS_PER_SEAL, after=0 if previous is None else previous.last)
        rows = rows[: _old_enough(rows, now, lag)]
        if not rows or (len(rows) < ROWS_PER_SEAL and min(row.at for row in rows) > now - lag - patience):
            break
        try:
            await store.apply(Commit(puts=[_put(previous, body_of(rows, previous))]))
        except ChangedMeanwhile:
            break
        sealed += len(rows)
        if len(rows) < ROWS_PER_SEAL:
            break
    return sealed


def _old_enough(rows: Sequence[AuditRow], now: datetime, lag: timedelta) -> int:
    """Returns how many rows can be sealed. A row with a smaller number may still be on its way: it ends at the first
    that is too young. The time of a row that lies ahead (a clock that jumped, or somebody who wants to hold up the
    seals) says nothing: such a row is sealed along with an older one behind it, and where a whole stretch is like that,
    at once."""
    count = 0
    for nth, row in enumerate(rows):
        if now - lag <= row.at <= now + lag:
            return count
        if row.at < now:
            count = nth + 1
    return len(rows) if count == 0 and len(rows) == ROWS_PER_SEAL else count


async def unsealed_since(store: Store, now: datetime) -> datetime | None:
    """Returns the time of the oldest row that should have been sealed by now; None when there is none."""
    previous = await last_seal(store)
    rows = await store.audit(AuditFilter(), limit=50, after=0 if previous is None else previous.last)
    oldest = min((row.at for row in rows), default=now)
    return oldest if now - oldest > OVERDUE else None


async def apply_sealed(store: Store, commit: Commit) -> Applied:
    """Applies a Commit, and seals the rows of its conclusion in the same transaction."""
    for _ in range(SEAL_TRIES):
        previous = await last_seal(store)

        def body(applied: Applied, previous: Seal | None = previous) -> Mapping[str, Any] | None:
            return body_of(applied.concluded, previous, ahead=True) if applied.concluded else None

        try:
            return await store.apply(replace(commit, puts=[*commit.puts, _put(previous, body)]))
        except ChangedMeanwhile:
            if await last_seal(store) == previous:
                raise  # another document of it was changed, not the chain
    raise ChangedMeanwhile("the audit log is being sealed by many at once", hint="try again")


async def last_seal(store: Store) -> Seal | None:
    """Returns the end of the chain, also where somebody has moved seals: a higher number wins over a later place."""
    newest = await store.records(COLLECTION, limit=1)
    if not newest:
        return None
    last = newest[0]
    while page := await store.records(COLLECTION, ids=_names(_number(last) + 1), limit=SEALS_PER_PAGE):
        last = max(page, key=_number)
    try:
        return Seal.of(last)
    except ValueError:
        raise StoreError(
            f"the last seal of the audit log, {last.id}, was rewritten: nothing is sealed or pruned any more",
            hint="redrive audit verify says more; restore the record from a copy",
        ) from None


async def tail_fault(store: Store) -> str | None:
    """Returns what is wrong with the latest seals; None when they follow each other. ``audit_verify`` looks at all of
    them, and at the rows that they cover."""
    try:
        await last_seal(store)
    except StoreUnavailable:
        raise
    except StoreError as error:
        return error.message
    previous: Seal | None = None
    for record in sorted(await store.records(COLLECTION, limit=SEALS_PER_PAGE), key=_number):
        try:
            found = Seal.of(record)
        except ValueError:
            return f"seal {record.id} of the audit log was rewritten"
        follows = previous is None or (found.prev == previous.hash and found.number == previous.number + 1)
        if found.hash != found.proven or not follows:
            return f"the chain of the audit log's seals is broken at {record.id}"
        previous = found
    return None


async def seals(store: Store, after: int = 0) -> AsyncIterator[Record]:
    """Yields seals in order, until one is missing."""
    while True:
        page = {
            record.id: record for record in await store.records(COLLECTION, ids=_names(after + 1), limit=SEALS_PER_PAGE)
        }
        for name in _names(after + 1):
            if name not in page:
                return
            yield page[name]
        after += SEALS_PER_PAGE


async def beyond(store: Store, number: int) -> int | None:
    """Returns the number of a seal that comes after a gap, if there is one among the latest."""
    later = [_number(record) for record in await store.records(COLLECTION, limit=1000)]
    return min((found for found in later if found > number), default=None)


def body_of(rows: Sequence[AuditRow], previous: Seal | None, *, ahead: bool = False) -> dict[str, Any]:
    before = 0 if previous is None else previous.last
    times = [row.at for row in rows]
    body = {
        "last": before if ahead else rows[-1].id,
        "ids": ids_of(rows),
        "digest": digest_of(map(row_hash, rows)),
        "prev": CHAIN_START if previous is None else previous.hash,
        "since": min(times).isoformat(),
        "until": max(times).isoformat(),
        "ahead": ahead,
    }
    return {**body, "hash": _chained(body)}


def _put(previous: Seal | None, body: Any) -> Put:
    return Put(COLLECTION, f"{1 if previous is None else previous.number + 1:012d}", body)


def _names(first: int) -> list[str]:
    return [f"{number:012d}" for number in range(first, first + SEALS_PER_PAGE)]


def _number(record: Record) -> int:
    """Returns the number in a seal's name; 0 for a name that no seal has."""
    return int(record.id) if len(record.id) == 12 and record.id.isascii() and record.id.isdigit() else 0


def _chained(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical([body[name] for name in _FIELDS]).encode()).hexdigest()
