"""Append-only lines that survive the death of whoever writes them: what was offered, acknowledged and done.

Each line is one ``write`` to a file opened for appending, so a SIGKILL between two lines loses neither, and no database
that somebody may break is needed to keep the record.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


class Journal:
    """One file, written by one process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, *fields: object) -> None:
        self.write_many([fields])

    def write_many(self, lines: list[tuple[object, ...]]) -> None:
        os.write(self._file, "".join("\t".join(map(str, line)) + "\n" for line in lines).encode())


def read(directory: Path, prefix: str) -> Iterator[list[str]]:
    """Yields every whole line of every journal with this prefix, split into its fields."""
    for path in sorted(directory.glob(f"{prefix}-*.journal")):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                yield line.rstrip("\n").split("\t")
