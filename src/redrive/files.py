"""Files that hold tasks, payloads or audit rows: for their owner only, whatever the umask says."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TextIO

PRIVATE, PRIVATE_FOLDER = 0o600, 0o700


def create_private(path: Path) -> None:
    """Make the file, empty, if it is not there; one that is there keeps its mode: somebody may have chosen it."""
    # Whoever opens it next says better why it cannot be made.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE))


def write_private(path: Path) -> TextIO:
    """A text file to write to, made or emptied."""
    return os.fdopen(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, PRIVATE), "w", encoding="utf-8", newline="")


def new_private(path: Path) -> BinaryIO:
    """A file that was not there before."""
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE), "wb")
