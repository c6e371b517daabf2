"""Reads the tasks of a batch from a file, as often as it is asked: to check, and to add them."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from redrive.batches.json_lines import array_of, is_array, value_of
from redrive.errors import InvalidInput

Named = tuple[str, dict[str, Any]]  # where it stands, and a task as enqueue's arguments


@contextmanager
def read_items(path: Path, kind: str | None) -> Iterator[Callable[[], Iterator[Named]]]:
    """Yields what reads all items from the beginning. Standard input is kept in a file meanwhile."""
    with _opened(path) as file:

        def items() -> Iterator[Named]:
            file.seek(0)
            for what, value in array_of(file, path) if is_array(file, path) else _lines(file):
                where = f"{what} of {path}"
                yield where, _item(value, where, kind)

        yield items


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with tempfile.TemporaryFile() if str(path) == "-" else path.open("rb") as file:
            if str(path) == "-":
                shutil.copyfileobj(sys.stdin.buffer, file)
            yield file
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from None


def _lines(file: BinaryIO) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(file, 1):
        if line.strip():
            yield f"line {number}", value_of(line, number)


def _item(value: Any, where: str, kind: str | None) -> dict[str, Any]:
    if kind is not None:
        return {"kind": kind, "payload": value}
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise InvalidInput(
            f"{where} names no kind",
            hint='{"kind": "SEND", "payload": {…}} a line, or --kind KIND and payloads; nothing was created',
        )
    return value
