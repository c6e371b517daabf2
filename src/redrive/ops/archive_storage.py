"""Storage of an archive's pieces: a folder, or a bucket of S3-compatible object storage."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from redrive.errors import ConfigError, StoreError
from redrive.files import PRIVATE_FOLDER, new_private

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
            raise StoreError(f"the audit archive {self} {what}: {_told(error)}", hint=hint) from None


def _what(found: os.stat_result) -> str:
    return f"{found.st_size:,} bytes" if stat.S_ISREG(found.st_mode) else "not a file"


def _told(error: Exception) -> str:
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
