"""The archive of pruned audit rows: compressed JSON lines.

It is written by us and read with suspicion: whoever can put files there must not be able to take a reader down.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import heapq
import json
import os
import re
import secrets
import stat
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from redrive.errors import ConfigError, StoreError
from redrive.files import PRIVATE_FOLDER, new_private
from redrive.kernel.audit import AuditFilter
from redrive.kernel.task import AuditRow
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
    def exists(self) -> bool:
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


# -- where pieces are kept ---------------------------------------------------------------------------------------------


_KEPT = "nothing was removed; mend it, or correct TASK_AUDIT_ARCHIVE"
_LOOK = "look at AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and the bucket"
_BUCKET = re.compile(r"[A-Za-z0-9._-]+\Z")
LARGEST_PIECE_BYTES = 256 << 20  # bytes of a piece; none that we write is nearly as large
_CODE = re.compile(r"<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", re.DOTALL)


class ArchiveStorage(Protocol):
    """Stores bytes by name: what was put is there as a whole, and stays, or it is not there."""

    def empty(self) -> bool:
        """True if nothing was ever put there, as far as that is known by one look."""

    def names(self) -> list[str]: ...

    def get(self, name: str) -> bytes: ...

    def put(self, name: str, data: bytes) -> None: ...

    def remove(self, name: str) -> None:
        """Removes a piece; no error if it is gone already."""


def storage_at(address: str) -> ArchiveStorage:
    """Returns the folder or bucket at a place. A place that is neither is not quoted in the error: people write keys
    where they do not belong."""
    scheme, found, rest = address.partition("://")
    if not found and not address.startswith("s3:"):
        return FolderStorage(Path(address))
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3":
        raise ConfigError("this is no place for an archive", hint="a folder, or s3://bucket/prefix")
    if not _BUCKET.match(bucket):
        raise ConfigError(
            "this names no bucket" if "@" not in address else "a login does not belong into the place of an archive",
            hint="s3://bucket/prefix; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are for the keys",
        )
    return BucketStorage(bucket, prefix.strip("/"))


class FolderStorage:
    def __init__(self, path: Path) -> None:
        self._path = path

    def empty(self) -> bool:
        return not self._path.is_dir()

    def __str__(self) -> str:
        return str(self._path)

    def names(self) -> list[str]:
        if not self._path.is_dir():
            raise ConfigError(f"there is no archive at {self}", hint="name it with --archive, or TASK_AUDIT_ARCHIVE")
        return [path.name for path in self._path.iterdir()]

    def get(self, name: str) -> bytes:
        try:
            # Neither what blocks (a pipe) nor what fills the memory: anybody may have put it there.
            handle = os.open(self._path / name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            with os.fdopen(handle, "rb") as file:
                found = os.fstat(handle)
                if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_PIECE_BYTES:
                    raise StoreError(f"{self._path / name} is no piece of an archive: {_what(found)}")
                return file.read(found.st_size)
        except OSError as error:
            raise StoreError(f"{self._path / name} cannot be read: {error.strerror or error}") from None

    def remove(self, name: str) -> None:
        try:
            (self._path / name).unlink(missing_ok=True)
            _sync(self._path)
        except OSError as error:
            raise StoreError(f"{self._path / name} cannot be removed: {error.strerror or error}") from None

    def put(self, name: str, data: bytes) -> None:
        # A name of its own: two who write the same piece at once must not share a draft.
        draft = self._path / f".draft-{os.getpid()}-{secrets.token_hex(8)}"
        try:
            self._path.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
            with new_private(draft) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path / name)
            _sync(self._path)
        except OSError as error:
            raise StoreError(
                f"the audit archive {self} cannot be written: {error.strerror or error}", hint=_KEPT
            ) from None
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)


class BucketStorage:
    """Object storage. Keys, region and endpoint come from ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``,
    ``AWS_REGION``, ``AWS_ENDPOINT_URL``, or from the role of the machine."""

    def __init__(self, bucket: str, prefix: str) -> None:
        try:
            from obstore.store import S3Store
        except ImportError:
            raise ConfigError(
                f"an archive in s3://{bucket} needs the package obstore", hint="pip install '/path/to/checkout[s3]'"
            ) from None
        self._address = f"s3://{bucket}" + (f"/{prefix}" if prefix else "")
        plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
        with self._saying("is not set up"):
            self._store = S3Store(
                bucket,
                prefix=prefix or None,
                client_options={"allow_http": plain, "timeout": timedelta(seconds=30)},
                retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=30)},
            )

    def __str__(self) -> str:
        return self._address

    def empty(self) -> bool:
        return False

    def names(self) -> list[str]:
        with self._saying("cannot be listed"):
            return [str(found["path"]) for page in self._store.list() for found in page]

    def get(self, name: str) -> bytes:
        with self._saying(f"cannot be read ({name})"):
            found = self._store.get(name)
            if found.meta["size"] > LARGEST_PIECE_BYTES:
                raise StoreError(f"{self}/{name} is no piece of an archive: {found.meta['size']:,} bytes")
            return bytes(found.bytes())

    def remove(self, name: str) -> None:
        with self._saying(f"cannot be cleaned ({name})", "the bucket has to allow deletion for that"):
            self._store.delete(name)

    def put(self, name: str, data: bytes) -> None:
        with self._saying("cannot be written", _KEPT):
            self._store.put(name, data)

    @contextlib.contextmanager
    def _saying(self, what: str, hint: str = _LOOK) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            raise StoreError(f"the audit archive {self} {what}: {_server_message(error)}", hint=hint) from None


def _what(found: os.stat_result) -> str:
    return f"{found.st_size:,} bytes" if stat.S_ISREG(found.st_mode) else "not a file"


def _server_message(error: Exception) -> str:
    """Returns what the server said, without the client's own debugging output."""
    text = str(error).partition("\n\nDebug source")[0]
    said = _CODE.search(text)
    return ": ".join(said.groups()) if said else text.strip()


def _sync(folder: Path) -> None:
    """Makes a file's name survive a power cut; where folders cannot be synced, it does by itself."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
