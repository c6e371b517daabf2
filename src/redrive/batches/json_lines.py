"""Reads items from JSON lines that come bit by bit: no more than one line is in memory."""

from __future__ import annotations

import shutil
import sys
import tempfile
from codecs import BOM_UTF8
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from redrive.batches.batch import BadItem
from redrive.errors import InvalidInput
from redrive.kernel.payload import decode
from redrive.kernel.task import MAX_PAYLOAD_BYTES

LONGEST_LINE = 2 * MAX_PAYLOAD_BYTES + 65_536  # a payload may be written with more characters than it is stored with
HINT = "one JSON value a line; nothing was created"
Named = tuple[str, dict[str, Any]]  # where it stands, and a task as enqueue's arguments


async def lines_of(chunks: AsyncIterable[bytes]) -> AsyncIterator[Any]:
    """Yields the value of each line of a body; empty lines are none."""
    rest, number = b"", 0
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            number += 1
            if line.strip():
                yield value_of(line, number)
        if len(rest) > LONGEST_LINE:
            raise BadItem(f"line {number + 1} is longer than {LONGEST_LINE} bytes", hint=HINT)
    if rest.strip():
        yield value_of(rest, number + 1)


def items_of(path: Path) -> Iterator[Any]:
    """Yields the items of a file: JSON lines, or one JSON array."""
    try:
        with path.open("rb") as file:
            if is_array(file, path):
                yield from (value for _, value in array_of(file, path))
                return
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield value_of(line, number)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from None


def value_of(line: bytes, number: int) -> Any:
    """Returns the value of a line; one that is no JSON is named."""
    try:
        return decode((line.removeprefix(BOM_UTF8) if number == 1 else line).decode())
    except ValueError as error:
        raise BadItem(f"line {number} is no JSON: {error}", hint=HINT) from None


def is_array(file: BinaryIO, path: Path) -> bool:
    """Returns whether a file is one JSON array; by its name ``.jsonl`` is not. It is read from its beginning then."""
    if file.read(len(BOM_UTF8)) != BOM_UTF8:
        file.seek(0)
    start = file.read(1)
    while start and start.isspace():
        start = file.read(1)
    file.seek(0)
    return start == b"[" and path.suffix != ".jsonl"


def array_of(file: BinaryIO, path: Path) -> Iterator[tuple[str, Any]]:
    """Yields the values of a JSON array, each with its place."""
    try:
        found = decode(file.read().decode("utf-8-sig"))
    except ValueError as error:
        raise BadItem(
            f"{path} is no JSON array: {error}", hint="one JSON value a line is read as well, from .jsonl"
        ) from None
    for number, value in enumerate(found, 1):
        yield f"item {number}", value


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
