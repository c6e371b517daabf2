"""The archive of pruned audit rows: compressed JSON lines.

It is written by us and read with suspicion: whoever can put files there must not be able to take a reader down.
"""

from __future__ import annotations

import gzip
import hashlib
import heapq
import json
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from redrive.errors import StoreError
from redrive.kernel.audit import AuditFilter
from redrive.kernel.task import AuditRow
from redrive.ops.archive_storage import storage_at
from redrive.ops.audit_rows import MOST_ROWS_PER_RANGE, archived_values, batch_target, row_of

LARGEST_LINE_BYTES = 16 << 20  # one row; none that we write is nearly as long
LARGEST_UNPACKED_BYTES = 1 << 30  # one piece, unpacked
_CHUNK = 1 << 18
_NAME = re.compile(r"audit-(\d{1,19})-(\d{1,19})-([0-9a-f]{12})\.jsonl\.gz")
_DAMAGES = (OSError, EOFError, ValueError, KeyError, TypeError, OverflowError, RecursionError, zlib.error)


@dataclass(slots=True, frozen=True)
class Piece:
    name: str
    sha256: str


@dataclass(slots=True, frozen=True, order=True)
class _Listed:
    first: int
    name: str
    last: int
    mark: str


class Archive:
    """Pieces, each complete before its rows are removed from the store. A piece is named after its first and last row
    and after its content: the same rows written twice are one piece, and two prunes never overwrite each other's."""

    def __init__(self, address: str) -> None:
        self._shelf = storage_at(address)

    def __str__(self) -> str:
        return str(self._shelf)

    @property
    def begun(self) -> bool:
        return not self._shelf.empty()

    def write(self, rows: Sequence[AuditRow]) -> Piece:
        text = "".join(json.dumps(archived_values(row)) + "\n" for row in rows)
        data = gzip.compress(text.encode(), mtime=0)
        sha256 = hashlib.sha256(data).hexdigest()
        name = f"audit-{rows[0].id:012d}-{rows[-1].id:012d}-{sha256[:12]}.jsonl.gz"
        self._shelf.put(name, data)
        return Piece(name, sha256)

    def names(self) -> list[str]:
        """Returns the names of its pieces, in the order of their first rows."""
        return [piece.name for piece in self._pieces()]

    def sha256(self, name: str) -> str:
        return hashlib.sha256(self._shelf.get(name)).hexdigest()

    def rows(self, name: str) -> list[AuditRow]:
        """Returns the rows of one piece; StoreError when it is damaged."""
        [piece] = self._pieces([name])
        return list(self._rows(piece))

    def remove(self, name: str) -> None:
        self._shelf.remove(name)

    def read(
        self, which: AuditFilter | None = None, on_damage: Callable[[StoreError], None] | None = None
    ) -> Iterator[AuditRow]:
        """Yields rows oldest first, each once, also if several pieces have it. Prunes by filter leave pieces whose
        stretches overlap, so they are merged; no more of them are in memory than overlap. Two different rows with one
        number are both returned: they are of two stores, or one was forged. ``on_damage``: told of a piece that cannot
        be read, which is then left out; without it, the error is raised."""
        ahead = deque(self._pieces())
        heads: list[tuple[int, str, AuditRow, Iterator[AuditRow]]] = []
        same: list[AuditRow] = []
        while ahead or heads:
            while ahead and (not heads or ahead[0].first <= heads[0][0]):
                piece = ahead.popleft()
                _push(heads, piece.name, self._carefully(piece, on_damage))
            if not heads:
                continue
            _, name, row, rest = heapq.heappop(heads)
            _push(heads, name, rest)
            if same and row.id != same[0].id:
                same = []
            if row not in same:
                same.append(row)
                if which is None or _fits(row, which):
                    yield row

    def _pieces(self, names: Sequence[str] | None = None) -> list[_Listed]:
        found = (
            match for name in (self._shelf.names() if names is None else names) if (match := _NAME.fullmatch(name))
        )
        return sorted(_Listed(int(match[1]), match[0], int(match[2]), match[3]) for match in found)

    def _carefully(self, piece: _Listed, on_damage: Callable[[StoreError], None] | None) -> Iterator[AuditRow]:
        try:
            yield from self._rows(piece)
        except StoreError as error:
            if on_damage is None:
                raise
            on_damage(error)

    def _rows(self, piece: _Listed) -> Iterator[AuditRow]:
        data = self._shelf.get(piece.name)
        try:
            if hashlib.sha256(data).hexdigest()[:12] != piece.mark:
                raise ValueError("it is not what was written")
            yield from _checked(piece, (row_of(json.loads(line)) for line in _lines(data)))
        except _DAMAGES as error:
            told = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
            raise StoreError(
                f"{piece.name} in the archive {self._shelf} is damaged: {told}",
                hint="restore it from a copy; moved away, the rest can be read",
            ) from None


def archive_at(address: str | None) -> Archive | None:
    """Returns the archive of the settings, or None if they name none."""
    return None if address is None else Archive(address)


def _checked(piece: _Listed, rows: Iterator[AuditRow]) -> Iterator[AuditRow]:
    """Yields rows, and raises if they are not as they were written: in order, within what the name says, and not more
    than a prune removes at once."""
    last = 0
    for count, row in enumerate(rows, 1):
        if not max(last + 1, piece.first) <= row.id <= piece.last or count > MOST_ROWS_PER_RANGE:
            raise ValueError("its rows are not those of its name")
        if count == 1 and row.id != piece.first:
            raise ValueError("its rows are not those of its name")
        last = row.id
        yield row
    if last != piece.last:
        raise ValueError("its rows are not those of its name")


def _lines(data: bytes) -> Iterator[str]:
    """Unpacks bit by bit: what a few bytes unpack to must not fill the memory."""
    unpacker, rest, total, source = zlib.decompressobj(wbits=31), b"", 0, data
    while True:
        text = unpacker.decompress(source, _CHUNK)
        source, total = unpacker.unconsumed_tail, total + len(text)
        *lines, rest = (rest + text).split(b"\n")
        if total > LARGEST_UNPACKED_BYTES or len(rest) > LARGEST_LINE_BYTES:
            raise ValueError("it unpacks to more than a piece can be")
        yield from (line.decode() for line in lines)
        if unpacker.eof or not (text or source):
            break
    if not unpacker.eof or unpacker.unused_data or rest:
        raise ValueError("it was cut off, or something follows it")


def _push(heads: list[tuple[int, str, AuditRow, Iterator[AuditRow]]], name: str, rows: Iterator[AuditRow]) -> None:
    row = next(rows, None)
    if row is not None:
        heapq.heappush(heads, (row.id, name, row, rows))


def _fits(row: AuditRow, which: AuditFilter) -> bool:
    names = ("action", "actor", "target", "task_id", "kind", "scope", "trace_id")
    if which.since is not None and row.at < which.since:
        return False
    if any(end is not None and row.at >= end for end in (which.until, which.older_than)):
        return False
    # An operation, or a batch that was acted on: in the store ``ops.audit.meant`` finds out which.
    if which.bulk_id not in (None, row.bulk_id) and row.target != batch_target(which.bulk_id):
        return False
    return all(getattr(which, name) in (None, getattr(row, name)) for name in names)
