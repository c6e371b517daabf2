"""What a batch is given: what it is to be, and tasks in every form that an application has them, in pieces, with a
digest of all of them; and items of a file or a body, of which no more than one line is in memory."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from codecs import BOM_UTF8
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast
from uuid import UUID

from redrive.batches.batch import BadItem
from redrive.errors import InvalidInput
from redrive.handlers.new_task import GivenTask, make_task
from redrive.handlers.registry import Registry
from redrive.ids import new_id
from redrive.kernel.payload import decode
from redrive.kernel.task import MAX_PAYLOAD_BYTES, NewTask

PIECE = 1000  # tasks in a transaction
Given = NewTask | GivenTask
Many = Iterable[Given] | AsyncIterable[Given]
LONGEST_LINE = 2 * MAX_PAYLOAD_BYTES + 65_536  # a payload may be written with more characters than it is stored with
HINT = "one JSON value a line; nothing was created"
Named = tuple[str, Any]  # where it stands, and its value
T = TypeVar("T", NewTask, NewTask | None)


def as_new(registry: Registry, given: Given, what: str) -> NewTask:
    """Returns a task of what an application gives: one that is made already, ``(kind, payload)``, or a dict of
    ``enqueue``'s arguments."""
    if isinstance(given, NewTask):
        return _own(given)
    try:
        if isinstance(given, tuple):
            kind, payload = given
            return make_task(registry, kind, payload)
        if isinstance(given, Mapping):
            return make_task(registry, **given)
    except InvalidInput as error:
        raise type(error)(f"{what}: {error.message}", hint=error.hint) from None
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{what}: {error}", hint=_FORMS) from None
    raise InvalidInput(f"{what} is {type(given).__name__}, and no task", hint=_FORMS)


def _own(given: NewTask) -> NewTask:
    """Returns a task like the one that was given, so that the same one can be given again: to another batch, twice to
    one, or after an error. The first has its id, by which the caller knows it; others have new ones."""
    made = replace(given, id=new_id()) if given.taken else replace(given)
    given.taken = True
    return made


_FORMS = "give send.new(…), (kind, payload), or a dict of enqueue's arguments"


async def in_pieces(many: Many | Given, size: int = PIECE) -> AsyncIterator[list[Given]]:
    """Yields what an iterable holds in lists of at most so many: no more of it is in memory."""
    piece = list[Given]()
    async for one in _each(many):
        piece.append(one)
        if len(piece) == size:
            yield piece
            piece = []
    if piece:
        yield piece


async def _each(many: Many | Given) -> AsyncIterator[Given]:
    if isinstance(many, NewTask | Mapping):
        yield many
    elif isinstance(many, tuple) and many and isinstance(many[0], str):
        yield cast("GivenTask", many)  # one task, and not a list of them
    elif isinstance(many, AsyncIterable):
        async for one in many:
            yield one
    elif isinstance(many, Iterable) and not isinstance(many, str | bytes):
        for given in many:
            yield cast("Given", given)
    else:
        raise InvalidInput(f"{type(many).__name__} holds no tasks", hint=_FORMS)


class Digest:
    """Tells whether two batches of one key are the same: by everything they were given, in its order."""

    def __init__(self, *about: object) -> None:
        self._hash = hashlib.sha256(repr(about).encode())
        self.count = 0

    def add(self, task: NewTask) -> None:
        self._hash.update(f"{task.kind}\x1f{task.payload}\x1e".encode())
        self.count += 1

    def text(self) -> str:
        return f"{self.count}:{self._hash.hexdigest()}"


def with_scope(task: T, scope: str | None) -> T:
    """Returns a task of a batch, about whom the batch is where it does not say that itself: by its scope it is found
    when that is erased, also where nothing is left of the batch."""
    if task is not None and task.scope is None:
        task.scope = scope
    return task


def members(
    registry: Registry, piece: list[Given], batch: UUID, digest: Digest, scope: str | None = None
) -> list[NewTask]:
    """Returns the tasks of a piece as items of a batch about this scope."""
    found = list[NewTask]()
    for given in piece:
        task = as_new(registry, given, f"task {digest.count} of the batch")
        if task.join not in (None, batch):
            raise InvalidInput(
                f"task {digest.count} of the batch is an item of another one ({task.join})", hint="leave join= out"
            )
        task.join = batch
        digest.add(task)
        found.append(with_scope(task, scope))
    return found


_OF_JOBS = ("provider", "account", "price", "webhook_url", "max_in_flight")
_OF_TASKS = ("on_complete", "on_success")


@dataclass(slots=True, frozen=True, kw_only=True)
class BatchRequest:
    """What was said of a batch, besides its items; None is what was not. ``called``: what a face calls these."""

    name: str | None = None
    key: str | None = None
    meta: Any = None
    scope: str | None = None
    on_complete: Given | None = None
    on_success: Given | None = None
    provider: str | None = None
    account: str | None = None
    price: int | None = None
    webhook_url: str | None = None
    max_in_flight: int | None = None
    called: Callable[[str], str] = str

    def check(self, tasks: bool, items: bool) -> None:
        """Refuses what is of both sorts, or of none, by its name."""
        if tasks == items:
            both = "tasks and items do not go together" if tasks else "there are neither tasks nor items"
            raise InvalidInput(f"{both}: {_SORTS}", hint=self._hint)
        if items and self.provider is None:
            raise InvalidInput(f"{self.called('provider')} is missing: {_SORTS}", hint=self._hint)
        wrong = [self.called(name) for name in (_OF_JOBS if tasks else _OF_TASKS) if getattr(self, name) is not None]
        if wrong:
            sort = "jobs at a provider" if tasks else "tasks"
            raise InvalidInput(f"{', '.join(wrong)}: only for batches of {sort}", hint=self._hint)

    @property
    def _hint(self) -> str:
        return f"with {self.called('provider')} the items are jobs there, without it they are tasks"

    def of_tasks(self) -> dict[str, Any]:
        """Returns the arguments for a batch of tasks."""
        names = (one.name for one in fields(self) if one.name not in (*_OF_JOBS, "called"))
        return {name: getattr(self, name) for name in names}


_SORTS = "a batch is of tasks, or of items that are jobs at a provider"


async def lines_of(chunks: AsyncIterable[bytes]) -> AsyncIterator[Any]:
    """Yields the value of each line of a body; empty lines are none."""
    rest, number = b"", 0
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            number += 1
            if line.strip():
                yield _value_of(line, number)
        if len(rest) > LONGEST_LINE:
            raise BadItem(f"line {number + 1} is longer than {LONGEST_LINE} bytes", hint=HINT)
    if rest.strip():
        yield _value_of(rest, number + 1)


def _value_of(line: bytes, number: int) -> Any:
    """Returns the value of a line; one that is no JSON is named."""
    try:
        return decode((line.removeprefix(BOM_UTF8) if number == 1 else line).decode())
    except ValueError as error:
        raise BadItem(f"line {number} is no JSON: {error}", hint=HINT) from None


def _is_array(file: BinaryIO, path: Path) -> bool:
    """Returns whether a file is one JSON array; by its name ``.jsonl`` is not. It is read from its beginning then."""
    if file.read(len(BOM_UTF8)) != BOM_UTF8:
        file.seek(0)
    start = file.read(1)
    while start and start.isspace():
        start = file.read(1)
    file.seek(0)
    return start == b"[" and path.suffix != ".jsonl"


def _array_of(file: BinaryIO, path: Path) -> Iterator[Named]:
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
def read_items(path: Path) -> Iterator[Callable[[], Iterator[Named]]]:
    """Yields what reads all items from the beginning, each with where it stands: JSON lines, or one JSON array.
    Standard input is kept in a file meanwhile."""
    try:
        with tempfile.TemporaryFile() if str(path) == "-" else path.open("rb") as file:
            if str(path) == "-":
                shutil.copyfileobj(sys.stdin.buffer, file)

            def items() -> Iterator[Named]:
                file.seek(0)
                return _array_of(file, path) if _is_array(file, path) else _lines(file)

            yield items
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from None


def _lines(file: BinaryIO) -> Iterator[Named]:
    for number, line in enumerate(file, 1):
        if line.strip():
            yield f"line {number}", _value_of(line, number)


def task_of(value: Any, where: str, kind: str | None) -> dict[str, Any]:
    """Returns an item as enqueue's arguments: a payload of a kind, or a task that names its own."""
    if kind is not None:
        return {"kind": kind, "payload": value}
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise InvalidInput(
            f"{where} names no kind",
            hint='{"kind": "SEND", "payload": {…}} a line, or --kind KIND and payloads; nothing was created',
        )
    return value
