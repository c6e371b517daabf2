"""Reads the items of a batch from a file of JSON lines, as often as it is asked: to check, and to add them."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from redrive.errors import InvalidInput
from redrive.kernel.payload import decode

Named = tuple[str, dict[str, Any]]  # where it stands, and a task as enqueue's arguments


@contextmanager
def read_items(path: Path, kind: str | None) -> Iterator[Callable[[], Iterator[Named]]]:
    """Yields what reads all items from the beginning. Standard input is kept in a file meanwhile."""
    with _opened(path) as file:

        def items() -> Iterator[Named]:
            file.seek(0)
            for number, line in enumerate(file, 1):
                if line.strip():
                    where = f"line {number} of {path}"
                    yield where, _item(line, where, kind)

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


def _item(line: bytes, where: str, kind: str | None) -> dict[str, Any]:
    try:
        value = decode(line.decode())
    except ValueError as error:
        raise InvalidInput(
            f"{where} is no JSON: {error}", hint="one JSON document a line; nothing was created"
        ) from None
    if kind is not None:
        return {"kind": kind, "payload": value}
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise InvalidInput(
            f"{where} names no kind",
            hint='{"kind": "SEND", "payload": {…}} a line, or --kind KIND and payloads; nothing was created',
        )
    return value
