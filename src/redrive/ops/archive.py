"""Audit rows that were pruned, kept as compressed JSON lines in a folder, and found there again."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from uuid import UUID

from redrive.errors import ConfigError, StoreError
from redrive.kernel.audit import AuditFilter
from redrive.kernel.task import AuditRow
from redrive.ops.audit import values_of


class Archive:
    """A folder. A piece is complete in its file before the rows are removed from the store, or it is not there."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def write(self, rows: Sequence[AuditRow]) -> Path:
        name = f"audit-{rows[0].id:012d}-{rows[-1].id:012d}.jsonl.gz"
        path, draft = self.folder / name, self.folder / f".{name}.{os.getpid()}"
        text = "".join(json.dumps(values_of(row)) + "\n" for row in rows)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with draft.open("wb") as file:
                file.write(gzip.compress(text.encode(), mtime=0))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            _sync(self.folder)
        except OSError as error:
            raise StoreError(
                f"the audit archive {self.folder} cannot be written: {error.strerror or error}",
                hint="nothing was removed; make room or correct TASK_AUDIT_ARCHIVE",
            ) from None
        return path

    def read(self, which: AuditFilter | None = None) -> Iterator[AuditRow]:
        """Oldest first, each row once, also if two pieces have it."""
        if not self.folder.is_dir():
            raise ConfigError(f"there is no archive at {self.folder}", hint="name the folder with --archive")
        last = 0
        for path in sorted(self.folder.glob("audit-*.jsonl.gz")):
            for row in _rows(path):
                if row.id > last and (which is None or _fits(row, which)):
                    yield row
                last = max(last, row.id)


def _rows(path: Path) -> Iterator[AuditRow]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield _row(json.loads(line))
    except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error) as error:
        raise StoreError(f"{path} is damaged: {error}", hint="verify says which rows are affected") from None


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


def _sync(folder: Path) -> None:
    """So that the name survives a power cut as well; where folders cannot be synced, it does by itself."""
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
