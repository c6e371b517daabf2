"""Converts audit rows for export, archive and hash.

What may have to be erased one day (reason, target, scope, trace id, before, after) enters a row's hash as one salted
digest. Erasing removes values and salt and leaves the digest: the hash stays what it was, and nobody can guess the
values back. Rows that tell of a removal say in ``before`` what was asked for, which may name somebody, and in ``after``
what went, which names nobody: numbers and hashes that prove the seals of others. That part of them stays.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from redrive.kernel.payload import JsonText, readable
from redrive.kernel.task import AuditRow
from redrive.ops.inspect import plain

_OUTSIDE = {"bulk_id": "batch_id"}


def batch_target(batch: str | None) -> str:
    """Returns how rows name a batch that was acted on."""
    return f"batch:{batch}"


def outside(name: str) -> str:
    """Returns the name that a field of an audit row has in exports, filters and answers."""
    return _OUTSIDE.get(name, name)


FIELDS = (
    "id",
    "at",
    "actor",
    "action",
    "reason",
    "task_id",
    "bulk_id",
    "target",
    "kind",
    "scope",
    "trace_id",
    "before",
    "after",
)
COLUMNS = tuple(outside(name) for name in FIELDS)
ERASABLE = ("reason", "target", "scope", "trace_id", "before", "after")
PRUNE_SUMMARY = "TASK_AUDIT_PRUNE_SUMMARY"
ERASE_SUMMARY = "TASK_ERASE_SUMMARY"
# What tells of removals: it goes in its time, with everything, and never by a filter.
SUMMARIES = (PRUNE_SUMMARY, ERASE_SUMMARY)
ARCHIVED = (*FIELDS, "salt", "erased")
MOST_ROWS_PER_RANGE = 10_000  # rows that one seal, one prune or one piece of an archive may tell of
LARGEST_ROW_ID = 2**63 - 1
_RANGES = re.compile(r"\d{1,19}(-\d{1,19})?(,\d{1,19}(-\d{1,19})?)*")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def done_of_matched(after: Any) -> str | None:
    """Returns how many tasks were meant and dealt with, such as "0 of 60"; None of rows that do not say."""
    if isinstance(after, JsonText):  # of a page
        after = readable(after)
    done, matched = (after.get(name) if isinstance(after, Mapping) else None for name in ("done", "matched"))
    return f"{done:,} of {matched:,}" if isinstance(done, int) and isinstance(matched, int) else None


def values_of(row: AuditRow) -> dict[str, Any]:
    """Returns a row as it is exported."""
    return {outside(name): plain(getattr(row, name)) for name in FIELDS}


def archived_values(row: AuditRow) -> dict[str, Any]:
    """Returns a row as it is archived: with what its hash needs."""
    return {outside(name): plain(getattr(row, name)) for name in ARCHIVED}


def row_of(values: Mapping[str, Any]) -> AuditRow:
    """Makes a row again of archived values; ValueError or KeyError when they are none."""
    kept = {name: values[outside(name)] for name in ARCHIVED}
    for name in ("reason", "bulk_id", "target", "kind", "scope", "trace_id", "salt", "erased"):
        if not isinstance(kept[name], str | None):
            raise ValueError(f"{name} is no text")
    if not isinstance(kept["actor"], str) or not isinstance(kept["action"], str):
        raise ValueError("a row without actor or action")
    if type(kept["id"]) is not int or not 0 < kept["id"] <= LARGEST_ROW_ID:
        raise ValueError("a row without a number")
    at, task_id = datetime.fromisoformat(str(kept["at"])), kept["task_id"]
    if at.tzinfo is None:
        raise ValueError("a time without a zone")
    return AuditRow(**{**kept, "at": at, "task_id": None if task_id is None else UUID(str(task_id))})


def erasable(row: AuditRow) -> tuple[str, ...]:
    """Returns what an erasure removes from a row."""
    return tuple(name for name in ERASABLE if name != "after") if row.action in SUMMARIES else ERASABLE


def content_digest(row: AuditRow) -> str:
    """Returns the digest that is left of the erasable part of a row when it is erased."""
    names = erasable(row)
    emptied = row.salt is None and all(getattr(row, name) is None for name in names)
    if row.erased is not None and emptied:
        return row.erased
    return _sha256(canonical([row.salt, {name: plain(getattr(row, name)) for name in names}]))


def row_hash(row: AuditRow) -> str:
    """Returns the hash of a row for the seals: of everything in it, in one order."""
    names = erasable(row)
    kept = {name: plain(getattr(row, name)) for name in FIELDS if name not in names}
    return _sha256(canonical([kept, content_digest(row)]))


def digest_of(hashes: Iterable[str]) -> str:
    return _sha256("".join(hashes))


def is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def ranges(ids: Iterable[int]) -> str:
    """Returns numbers, which are in order, as ``1-40,45``."""
    parts: list[list[int]] = []
    for number in ids:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def parse_ranges(text: object, most: int = MOST_ROWS_PER_RANGE) -> list[int]:
    """Returns the numbers again, ascending; ValueError for what ``ranges`` would not write, or for more than
    ``most``."""
    if not isinstance(text, str) or len(text) > 42 * most or _RANGES.fullmatch(text) is None:
        raise ValueError("no ranges of numbers")
    numbers: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        first, last = int(low), int(high or low)
        if not (numbers[-1] if numbers else 0) < first <= last <= LARGEST_ROW_ID or last - first + len(numbers) >= most:
            raise ValueError("ranges that overlap, or are too long")
        numbers += range(first, last + 1)
    return numbers


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def ids_of(rows: Sequence[AuditRow]) -> str:
    return ranges(row.id for row in rows)
