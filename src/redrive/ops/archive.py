"""Audit rows that were pruned, kept as compressed JSON lines, and found there again."""

from __future__ import annotations

import gzip
import hashlib
import heapq
import json
import re
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import datetime
from uuid import UUID

from redrive.errors import StoreError
from redrive.kernel.audit import AuditFilter
from redrive.kernel.task import AuditRow
from redrive.ops.audit import values_of
from redrive.ops.shelves import shelf_at

_NAME = re.compile(r"audit-(\d+)-(\d+)-([0-9a-f]{12})\.jsonl\.gz")


class Archive:
    """Pieces, each complete before its rows are removed from the store. A piece is named after its first and last row
    and after its content: the same rows written twice are one piece, and two prunes never overwrite each other's."""

    def __init__(self, address: str) -> None:
        self._shelf = shelf_at(address)

    @property
    def begun(self) -> bool:
        return not self._shelf.empty()

    def write(self, rows: Sequence[AuditRow]) -> str:
        text = "".join(json.dumps(values_of(row)) + "\n" for row in rows)
        data = gzip.compress(text.encode(), mtime=0)
        name = f"audit-{rows[0].id:012d}-{rows[-1].id:012d}-{_mark(data)}.jsonl.gz"
        self._shelf.put(name, data)
        return name

    def read(self, which: AuditFilter | None = None) -> Iterator[AuditRow]:
        """Oldest first, each row once, also if several pieces have it. Prunes by filter leave pieces whose stretches
        overlap, so they are merged; no more of them are in memory than overlap. Two different rows with one number are
        both answered: they are of two stores."""
        found = (match for name in self._shelf.names() if (match := _NAME.fullmatch(name)))
        ahead = deque(sorted((int(match[1]), match[0], match[3]) for match in found))
        heads: list[tuple[int, str, AuditRow, Iterator[AuditRow]]] = []
        same: list[AuditRow] = []
        while ahead or heads:
            while ahead and (not heads or ahead[0][0] <= heads[0][0]):
                _, name, mark = ahead.popleft()
                _push(heads, name, self._rows(name, mark))
            _, name, row, rest = heapq.heappop(heads)
            _push(heads, name, rest)
            if same and row.id != same[0].id:
                same = []
            if row not in same:
                same.append(row)
                if which is None or _fits(row, which):
                    yield row

    def _rows(self, name: str, mark: str) -> Iterator[AuditRow]:
        data = self._shelf.get(name)
        try:
            if _mark(data) != mark:
                raise ValueError("it is not what was written")
            yield from [_row(json.loads(line)) for line in gzip.decompress(data).decode().splitlines()]
        except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error) as error:
            raise StoreError(
                f"{name} in the archive {self._shelf} is damaged: {error}",
                hint="restore it from a copy; moved away, the rest can be read",
            ) from None


def archive_at(address: str | None) -> Archive | None:
    """The archive of the settings, if they name one."""
    return None if address is None else Archive(address)


def _push(heads: list[tuple[int, str, AuditRow, Iterator[AuditRow]]], name: str, rows: Iterator[AuditRow]) -> None:
    row = next(rows, None)
    if row is not None:
        heapq.heappush(heads, (row.id, name, row, rows))


def _mark(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _row(values: dict[str, object]) -> AuditRow:
    kept = {field.name: values[field.name] for field in fields(AuditRow)}
    task_id = kept["task_id"]
    kept |= {"at": datetime.fromisoformat(str(kept["at"])), "task_id": None if task_id is None else UUID(str(task_id))}
    return AuditRow(**kept)  # type: ignore[arg-type]


def _fits(row: AuditRow, which: AuditFilter) -> bool:
    names = ("action", "actor", "batch_id", "task_id", "kind", "scope", "trace_id")
    if which.older_than is not None and row.at >= which.older_than:
        return False
    return all(getattr(which, name) in (None, getattr(row, name)) for name in names)
