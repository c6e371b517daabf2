"""Joins: tasks that belong together, and what is enqueued when all of them have ended.

A join counts its members by the state in which they ended. Arrivals are written with the settlements that cause them,
by whoever settles; a member that an operator retries is taken out of the count again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.kernel import documents
from redrive.kernel.documents import to_document
from redrive.kernel.payload import check, decode
from redrive.kernel.task import (
    MAX_FACTS_BYTES,
    NewTask,
    check_attempts,
    check_feature,
    check_join,
    check_labels,
    check_name,
    check_priority,
    check_seconds,
    check_timeout,
    refuse_reserved,
)


def check_later(task: NewTask, what: str) -> None:
    """Refuses a task that could not be enqueued when its time comes; ``what`` is it, for the message."""
    try:
        _check(task)
    except InvalidInput as error:
        raise type(error)(f"{what}: {error.message}", hint=error.hint) from None
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"{what}: {error}") from None


def _check(task: NewTask) -> None:
    if task.run_at is not None:
        raise InvalidInput("what is enqueued later has no run_at", hint="give it a delay, from then on")
    check_name(task.kind, "kind")
    check_name(task.queue, "queue")
    check_attempts(task.max_attempts)
    check_priority(task.priority)
    check_labels(task)
    refuse_reserved(task.idempotency_key, own=task.own)
    for text, name, limit in ((task.payload, "payload", None), (task.facts, "facts", MAX_FACTS_BYTES)):
        if text is not None:
            check(text, name) if limit is None else check(text, name, limit)
            decode(text)
    if task.feature is not None:
        check_feature(task)
    if task.timeout is not None:
        check_timeout(task.timeout)
    if task.delay is not None:
        check_seconds(task.delay, "delay")
    if task.join is not None:
        check_join(task.join)


@dataclass(slots=True, frozen=True)
class NewJoin:
    """Opens a join. Tasks become its members by ``NewTask.join``, in this Commit or later.

    ``on_complete`` is enqueued once, when every member has ended; ``on_success`` once, when every member has
    completed, be it after retries. While it is ``open`` neither happens, however many have arrived.
    Joins nest: an ``on_complete`` that is a member of another join is one from now on, so that the other waits for it.
    """

    id: UUID
    on_complete: NewTask | None = None
    on_success: NewTask | None = None
    open: bool = False

    def __post_init__(self) -> None:
        both = self.on_complete, self.on_success
        if None not in both and len({task.id for task in both if task is not None}) == 1:
            raise InvalidInput(
                "on_complete and on_success are the same task, and both may come", hint="make one for each of them"
            )
        if self.outer == self.id:
            raise InvalidInput(
                "a join cannot wait for its own end", hint="on_complete is a member of another join, or of none"
            )
        if self.on_success is not None and self.on_success.join is not None:
            raise InvalidInput(
                "on_success cannot be a member of another join, which would wait for what may never come",
                hint="make on_complete the member",
            )

    @property
    def outer(self) -> UUID | None:
        """The join that its end arrives at."""
        return None if self.on_complete is None else self.on_complete.join


@dataclass(slots=True, frozen=True)
class Join:
    """A join as the store holds it; the counts of a large one may be a second old."""

    id: UUID
    total: int
    completed: int
    failed: int
    cancelled: int
    open: bool
    created_at: datetime
    ended_at: datetime | None = None  # when all had ended for the first time
    succeeded_at: datetime | None = None
    fault: str | None = None  # why what follows could not be enqueued

    @property
    def pending(self) -> int:
        """How many members have not ended."""
        return self.total - self.completed - self.failed - self.cancelled


def check_joins(joins: Sequence[NewJoin]) -> None:
    """Refuses joins that are opened together and wait for each other's ends. With older ones they cannot: those knew
    nothing of these."""
    outer = {join.id: join.outer for join in joins}
    for join in joins:
        seen, at = {join.id}, join.outer
        while at is not None and at in outer:
            if at in seen:
                raise InvalidInput(f"joins wait for each other's ends: {join.id} is among them")
            seen.add(at)
            at = outer[at]


_NOT_KEPT = ("taken", "by_kind", "declared")  # of the moment, or unknown to workers from before


def as_document(task: NewTask | None, what: str = "a task that is enqueued later") -> dict[str, Any] | None:
    """Returns a task to be enqueued later as JSON values, without fields that are None or False. One that could
    not be enqueued is refused now: later nobody is there to be told."""
    if task is None:
        return None
    check_later(task, what)
    kept = {name: value for name, value in to_document(task).items() if name not in _NOT_KEPT}
    return {name: value for name, value in kept.items() if value is not None and value is not False}


def from_document(document: dict[str, Any]) -> NewTask:
    """Makes the task again from ``as_document``."""
    return documents.from_document(NewTask, {"payload": None, **document}, strict=True)


def raise_no_members(join_id: object) -> NoReturn:
    raise InvalidInput(
        f"join {join_id} takes no members: it has ended, or there is none",
        hint="a task adds members to its own join before it ends; open a new one otherwise",
    )
