"""The audit log: query, export, prune, and its filters as people give them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from redrive.errors import InvalidInput
from redrive.ids import new_id
from redrive.kernel.applied import Applied
from redrive.kernel.audit import Audit, AuditFilter
from redrive.kernel.commit import Commit
from redrive.kernel.payload import JsonText, readable
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put
from redrive.kernel.task import AuditRow, check_int, check_text
from redrive.kernel.trace import trace_id_of
from redrive.ops.actions import check_actor
from redrive.ops.audit_chain import apply_sealed
from redrive.ops.audit_rows import COLUMNS, PRUNE_SUMMARY, SUMMARIES, batch_target, ids_of, outside, row_hash, values_of
from redrive.ops.csv_lines import csv_line
from redrive.ops.filters import Filter, parse_span
from redrive.ops.inspect import parse_id, plain
from redrive.ops.pages import LONGEST_ALONE, in_pieces

LARGEST_PAGE = 500
ROWS_PER_READ, ROWS_PER_PRUNE = 100, 500
EXPORT_CHUNK_CHARS = 65_536
EXPORT_FORMATS = ("json", "csv", "jsonl")
# Prunes that write to the archive, while they are at it: an erasure of the archive waits for them.
PRUNE_COLLECTION = "audit-prune"
PRUNE_LASTS_S = 600.0  # seconds between two pieces, at most
RETENTION_ACTOR = "redrive:retention"
# Retention waits so long for a full piece: each removal has a seal of its own, and these should be few.
WAIT_FOR_FULL_PIECE = timedelta(hours=1)
EVERY_ROW = AuditFilter()


@dataclass(slots=True)
class Page:
    rows: list[AuditRow]
    page: int
    page_size: int
    more: bool

    @property
    def next_before(self) -> int | None:
        return self.rows[-1].id if self.more and self.rows else None


@dataclass(slots=True)
class Pruned:
    matched: int
    removed: int
    dry_run: bool
    batch_id: str | None = None


async def resolve_batch(store: Store, which: AuditFilter) -> AuditFilter:
    """Returns the filter of what an id stands for that people call a batch: a bulk action by which rows were written,
    else a batch that they are about. Found out first, so that each is read by its own index."""
    if which.bulk_id is None or await store.audit(AuditFilter(bulk_id=which.bulk_id), limit=1):
        return which
    return replace(which, bulk_id=None, target=batch_target(which.bulk_id))


async def query(
    store: Store,
    which: AuditFilter = EVERY_ROW,
    *,
    page: int = 1,
    page_size: int = 50,
    before: int | None = None,
    paged: bool = False,
) -> Page:
    """Returns rows newest first: by page, or from ``before`` on, which stays stable while rows are added. ``paged``:
    with documents as text, as far as the budget of a page goes."""
    which = await resolve_batch(store, which)
    check_int(page, "page", 1, 1_000_000)
    check_int(page_size, "page size", 1, LARGEST_PAGE)
    offset = 0 if before is not None else (page - 1) * page_size
    if paged:
        found = await _paged(store, which, page_size + 1, offset, before)
    else:
        found = await store.audit(which, limit=page_size + 1, offset=offset, before=before)
    return Page([_slim(row) for row in found[:page_size]], page, page_size, len(found) > page_size)


async def _paged(store: Store, which: AuditFilter, limit: int, offset: int, before: int | None) -> list[AuditRow]:
    async def fetch(number: int, documents: int, last: AuditRow | None) -> list[AuditRow]:
        place = (offset, before) if last is None else (0, last.id)
        return await store.audit(
            which, limit=number, offset=place[0], before=place[1], documents=LONGEST_ALONE if documents else 0
        )

    return await in_pieces(limit, fetch)


def _slim(row: AuditRow) -> AuditRow:
    """Returns a row without the hashes in a prune's summary: they are for the seals, and nobody reads them in a
    list."""
    if row.action not in SUMMARIES:
        return row
    after = readable(row.after) if isinstance(row.after, JsonText) else row.after
    if not isinstance(after, dict):
        return row
    return replace(row, after={name: value for name, value in after.items() if name != "hashes"})


async def export(
    store: Store,
    which: AuditFilter = EVERY_ROW,
    form: str = "json",
    seen: Callable[[AuditRow], AuditRow] = lambda row: row,
) -> AsyncIterator[str]:
    """Yields everything that matches, oldest first, a piece at a time: memory does not grow with the log, and others
    have their turn in between. Rows that are added while it runs are part of it or not. Each is as ``seen`` shows
    it."""
    gathered, length = list[str](), 0
    async for line in _lines(store, which, form, seen):
        gathered.append(line)
        length += len(line)
        if length >= EXPORT_CHUNK_CHARS:
            yield "".join(gathered)
            gathered, length = [], 0
            await asyncio.sleep(0)
    yield "".join(gathered)


async def _lines(
    store: Store, which: AuditFilter, form: str, seen: Callable[[AuditRow], AuditRow]
) -> AsyncIterator[str]:
    if form not in EXPORT_FORMATS:
        raise InvalidInput(f"{form!r} is no format of an export", hint="json, csv or jsonl")
    if form == "csv":
        yield csv_line(COLUMNS)
    elif form == "json":
        yield "["
    first, after = True, 0
    which = await resolve_batch(store, which)
    while rows := await store.audit(which, limit=ROWS_PER_READ, after=after):
        after = rows[-1].id
        for row in map(seen, rows):
            if form == "csv":
                yield csv_line(values_of(row).values())
            elif form == "jsonl":
                yield json.dumps(values_of(row)) + "\n"
            else:
                yield ("\n" if first else ",\n") + json.dumps(values_of(row))
            first = False
    if form == "json":
        yield "\n]\n"


class WrittenPiece(Protocol):
    """A piece of an archive, by its name and what is in it."""

    @property
    def name(self) -> str: ...
    @property
    def sha256(self) -> str: ...


class PieceWriter(Protocol):
    """Where rows go before they are removed."""

    def write(self, rows: Sequence[AuditRow]) -> WrittenPiece: ...


async def prune(
    store: Store,
    which: AuditFilter = EVERY_ROW,
    *,
    older_than_days: float,
    actor: str,
    dry_run: bool = False,
    piece: int = ROWS_PER_PRUNE,
    archive: PieceWriter | None = None,
    stopping: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda _: None,
) -> Pruned:
    """Removes rows older than so many days, piece by piece: archived first, if there is an archive, then removed
    together with a row that says so. The summary keeps the hashes of what went, so that the seals can still be checked,
    and is sealed with the removal."""
    who = check_actor(actor)
    if not 0 <= older_than_days <= 36_500:
        raise InvalidInput(f"olderThanDays must be from 0 to 36500, not {older_than_days:g}")
    old = replace(await resolve_batch(store, which), older_than=await store.now() - timedelta(days=older_than_days))
    if dry_run:
        return Pruned(await store.count_audit(old), 0, True)
    bulk_id, removed, version = str(new_id()), 0, 0
    facts = {outside(name): plain(value) for name, value in asdict(old).items() if value is not None}
    after = 0
    while not stopping() and (found := await store.audit(old, limit=piece, after=after)):
        after = found[-1].id
        # What was pruned before is told by its summary: it goes in its time, with everything, and not by a filter.
        rows = found if which == EVERY_ROW else [row for row in found if row.action not in SUMMARIES]
        if rows:
            if archive is not None:
                version = await _announce(store, bulk_id, version, "running")
                # Read again: what was erased before this was announced is written down as it is now.
                rows = await _again(store, rows)
            written = None if archive is None or not rows else await asyncio.to_thread(archive.write, rows)
            applied = await apply_sealed(store, _removal(rows, who, bulk_id, facts, which == EVERY_ROW, written))
            removed += len(applied.pruned)
            progress(len(applied.pruned))
        if len(found) < piece:
            break
    if version:
        await _announce(store, bulk_id, version, "done")
    return Pruned(removed, removed, False, bulk_id)


async def _announce(store: Store, bulk_id: str, version: int, state: str) -> int:
    await store.apply(Commit(puts=[Put(PRUNE_COLLECTION, bulk_id, {}, version, state, PRUNE_LASTS_S)]))
    return version + 1


async def _again(store: Store, rows: list[AuditRow]) -> list[AuditRow]:
    wanted, found, after = {row.id for row in rows}, list[AuditRow](), rows[0].id - 1
    while after < rows[-1].id and (page := await store.audit(EVERY_ROW, limit=ROWS_PER_READ, after=after)):
        found += [row for row in page if row.id in wanted]
        after = page[-1].id
    return found


def _removal(
    rows: list[AuditRow], who: str, bulk_id: str, facts: dict[str, Any], everything: bool, written: WrittenPiece | None
) -> Commit:
    """Returns the Commit that removes these rows; its summary counts those that this one removed, since another may
    have been quicker with some."""

    def told(applied: Applied) -> list[Audit]:
        gone = [row for row in rows if row.id in applied.pruned]
        if not gone:
            return []
        after = {
            "removed": len(gone),
            "ids": ids_of(gone),
            "everything": everything,
            "older_than": facts["older_than"],
            "youngest": max(row.at for row in gone).isoformat(),
            "hashes": [row_hash(row) for row in gone],
            "piece": None if written is None else {"name": written.name, "sha256": written.sha256},
        }
        return [Audit(who, PRUNE_SUMMARY, None, None, bulk_id, {"filter": facts}, after)]

    return Commit(pruned=[row.id for row in rows], conclusion=told)


async def retain(
    store: Store, days: float, piece: int, stopping: Callable[[], bool], archive: PieceWriter | None = None
) -> None:
    """Removes what is past its keep, a full piece at a time; fewer rows wait up to an hour for more."""
    now = await store.now()
    old = await store.audit(AuditFilter(older_than=now - timedelta(days=days)), limit=piece, after=0)
    if old and not stopping() and (len(old) >= piece or old[0].at < now - timedelta(days=days) - WAIT_FOR_FULL_PIECE):
        await prune(store, older_than_days=days, actor=RETENTION_ACTOR, piece=piece, archive=archive, stopping=stopping)


# -- filters that people give ------------------------------------------------------------------------------------------


AUDIT_FILTERS = (
    Filter("action", "NAME", "Such as TASK_RETRY.", said=("--action", "auditAction")),
    Filter("actor", "NAME", "By this one.", said=("--actor", "auditActor")),
    Filter("bulk_id", "ID", "Of this bulk action, operation or batch.", said=("--batch", "batchId")),
    Filter("task_id", "ID", "About this task.", said=("--task", "taskId")),
    Filter("kind", "KIND", "About tasks of this kind.", "jobKind"),
    Filter("scope", "TEXT", "About tasks of this scope.", "episodeId"),
    Filter("trace_id", "ID", "About tasks of this trace."),
    Filter("since", "TIME", "Done then or later: 15m, 1h, 7d (ago), or 2026-03-01T08:30, of UTC without a zone."),
    Filter("until", "TIME", "Done before then."),
)
LONGEST_NAME = 150  # characters; file systems take 255
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9.]+")


def make_audit(
    *, task_id: str | None = None, since: str | None = None, until: str | None = None, **texts: str | None
) -> AuditFilter:
    """Returns a filter of audit rows, checked."""
    checked: dict[str, Any] = {name: check_text(value, outside(name)) for name, value in texts.items()}
    checked["trace_id"] = trace_id_of(checked.get("trace_id"))
    begin, end = parse_span(since, until)
    return AuditFilter(**checked, task_id=None if task_id is None else parse_id(task_id), since=begin, until=end)


def file_name(which: AuditFilter, form: str, now: datetime) -> str:
    """Returns what an export is called: when it was made, and what is in it."""
    given = [f"{outside(name)}-{_in_name(value)}" for name, value in asdict(which).items() if value is not None]
    return "_".join(["redrive-audit", _in_name(now), *given])[:LONGEST_NAME] + f".{form}"


def _in_name(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    return _NOT_IN_NAMES.sub("-", str(value))[:40].strip("-.")
