"""What workers note about handlers that harm others, or that they do not have, for whoever looks at their tasks: small
collections."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime

from redrive.kernel.documents import from_document
from redrive.kernel.records import Put, Record

# One for each attempt that was given up; its state is the task's id until the handler ends.
STRAY_COLLECTION = "stray-handler"
BLOCKED_COLLECTION = "blocked-loop"  # one for each kind
UNHANDLED_COLLECTION = "unhandled-kind"  # one for each kind that somebody hands back
OVER = "over"
KEPT_S = 86_400.0
UNHANDLED_KEPT_S = 300.0
MOST_BLOCKS = 20


@dataclass(slots=True, frozen=True)
class Stray:
    """A handler that did not stop when it was told to: its task was settled without it, and it runs on."""

    task_id: str
    kind: str
    worker_id: str
    since: str  # when its task was settled
    isolation: str

    def put(self, token: str) -> Put:
        return Put(STRAY_COLLECTION, token, asdict(self), state=self.task_id, keep=KEPT_S)


@dataclass(slots=True, frozen=True)
class LoopBlock:
    """A stretch of time in which an ``async def`` handler let nothing else run on its worker's event loop. ``timeout``:
    that of the task, if it was over by then."""

    task_id: str
    kind: str
    worker_id: str
    at: str
    seconds: float
    where: str
    timeout: float | None = None


@dataclass(slots=True, frozen=True)
class Unhandled:
    """A kind of a feature whose tasks a worker hands back: its application does not have it."""

    kind: str
    worker_id: str
    at: str

    def put(self, known: Record | None) -> Put:
        version = 0 if known is None else known.version
        return Put(UNHANDLED_COLLECTION, self.kind, asdict(self), version, keep=UNHANDLED_KEPT_S)


def stray_over(record: Record) -> Put:
    """Notes that the handler has ended after all; nobody asks for it any more."""
    return Put(STRAY_COLLECTION, record.id, record.body, record.version, OVER, keep=0.0)


def add_blocks(kind: str, known: Record | None, blocks: Iterable[LoopBlock]) -> Put:
    """Adds blocks of one kind to those that are known, and keeps the last of them."""
    before = [] if known is None else list(known.body.get("blocks", ()))
    kept = [*before, *map(asdict, blocks)][-MOST_BLOCKS:]
    return Put(BLOCKED_COLLECTION, kind, {"blocks": kept}, 0 if known is None else known.version, keep=KEPT_S)


def stray_of(record: Record) -> Stray:
    return from_document(Stray, record.body)


def blocks_of(record: Record) -> list[LoopBlock]:
    """Returns the blocks of one kind, the last one first."""
    return [from_document(LoopBlock, one) for one in reversed(record.body.get("blocks", ()))]


def unhandled_of(record: Record) -> Unhandled:
    return from_document(Unhandled, record.body)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
