"""Makes new tasks of what a producer gives: everything is checked here, before it reaches a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, overload
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.handlers.registry import Declared, Handler, Registry
from redrive.handlers.signature import Call
from redrive.ids import new_id
from redrive.kernel.payload import decode, encode
from redrive.kernel.task import (
    NewTask,
    State,
    Task,
    check_attempts,
    check_feature,
    check_join,
    check_key,
    check_name,
    check_priority,
    check_run_at,
    check_seconds,
    check_text,
    check_timeout,
)
from redrive.kernel.trace import trace_id_of

# The store's clock decides about times; this much the caller's may differ from it.
CLOCK_SKEW = timedelta(days=1)
DEFAULT_QUEUE = "default"
GivenTask = Mapping[str, Any] | tuple[str, Any]


def make_task(
    registry: Registry,
    kind: str,
    payload: Any = None,
    *,
    queue: str | None = None,
    priority: int | None = None,
    delay: float | None = None,
    run_at: datetime | None = None,
    max_attempts: int | None = None,
    timeout: float | None = None,
    group: str | None = None,
    scope: str | None = None,
    trace_id: str | None = None,
    idempotency_key: str | None = None,
    join: UUID | None = None,
    feature: str | None = None,
    facts: Mapping[str, Any] | None = None,
) -> NewTask:
    """Returns a new task, or refuses it: nothing reaches a store before all of it is right."""
    # A kind that is known, and what it was declared with, have been checked there.
    if isinstance(kind, str):
        registry.reserved.refuse(kind)
    known = (registry.known(kind) if isinstance(kind, str) else None) or _unknown(registry, kind)
    text = _encoded(known, payload)
    if delay is not None and run_at is not None:
        raise InvalidInput("give delay or run_at, not both")
    new = NewTask(
        new_id(),
        kind,
        known.queue if queue is None else check_name(queue, "queue"),
        text,
        known.priority if priority is None else check_priority(priority),
        known.max_attempts if max_attempts is None else check_attempts(max_attempts),
        None if delay is None else check_seconds(delay, "delay"),
        None if run_at is None else check_run_at(run_at, datetime.now(UTC) + CLOCK_SKEW),
        None if timeout is None else check_timeout(timeout),
        None if group is None else check_text(group, "group"),
        None if scope is None else check_text(scope, "scope"),
        None if trace_id is None else check_text(trace_id, "trace_id"),
        None if idempotency_key is None else check_key(idempotency_key),
        feature,
        None if facts is None else encode(facts, "facts"),
        None if join is None else check_join(join),
    )
    new.by_kind = max_attempts is None and isinstance(known, Declared)
    if feature is not None or facts is not None:
        check_feature(new)
    return new


def _encoded(known: Handler | Declared, payload: Any) -> str | None:
    if isinstance(known, Handler):
        return known.payload.encode_call(payload) if type(payload) is Call else known.payload.encode(payload)
    return None if payload is None else encode(payload)


def _unknown(registry: Registry, kind: str) -> Declared:
    """Refuses an unknown kind; an application without any kinds is a pure producer, and may enqueue all."""
    registry.refuse_unknown(check_name(kind, "kind"))
    return Declared(kind, registry.queue_of(kind, DEFAULT_QUEUE))


def kinds_of(tasks: Iterable[GivenTask]) -> Iterator[str]:
    """Yields the kind of each task of a list; what is no task is passed over."""
    for given in tasks:
        kind = given.get("kind") if isinstance(given, Mapping) else next(iter(given), None)
        if isinstance(kind, str):
            yield kind


class NewTasks(Sequence[NewTask]):
    """The tasks of a list, each made when it is first looked at: the first of many are on their way to the database
    before the last are made."""

    def __init__(self, registry: Registry, given: Sequence[GivenTask]) -> None:
        self._registry = registry
        self._given = list(given)
        self._made: list[NewTask] = []
        self._trace: str | None = None

    def stamp(self, trace: str) -> None:
        """Gives the trace of the call to all that were given none, also to those that are made later."""
        self._trace = trace
        stamp(self._made, trace)

    @property
    def may_be_parted(self) -> bool:
        """Returns whether it is certain, without making them, that none has a key: keys are taken all at once."""
        return all(
            isinstance(given, tuple) or (isinstance(given, Mapping) and given.get("idempotency_key") is None)
            for given in self._given
        )

    @property
    def kinds(self) -> Iterator[str]:
        """Yields the kind of each, without making it; what is no task is left for ``make`` to refuse."""
        return kinds_of(self._given)

    def make(self, count: int) -> None:
        """Makes at least the first so many."""
        for index in range(len(self._made), min(count, len(self._given))):
            task = self._from(index, self._given[index])
            if self._trace is not None and task.trace_id is None:
                task.trace_id = self._trace
            self._made.append(task)

    def __len__(self) -> int:
        return len(self._given)

    def __iter__(self) -> Iterator[NewTask]:
        self.make(len(self))
        return iter(self._made)

    @overload
    def __getitem__(self, index: int) -> NewTask: ...
    @overload
    def __getitem__(self, index: slice) -> list[NewTask]: ...
    def __getitem__(self, index: int | slice) -> NewTask | list[NewTask]:
        last = index.indices(len(self))[1] if isinstance(index, slice) else range(len(self))[index] + 1
        self.make(last)
        return self._made[index]

    def _from(self, index: int, given: GivenTask) -> NewTask:
        try:
            if isinstance(given, tuple):
                kind, payload = given
                return make_task(self._registry, kind, payload)
            return make_task(self._registry, **given)
        except InvalidInput as error:
            raise type(error)(f"task {index} of the list: {error.message}", hint=error.hint) from None
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"task {index} of the list cannot be used: {error}",
                hint="give (kind, payload) or a dict of enqueue's arguments",
            ) from None


def stamp(tasks: Sequence[NewTask], trace: str) -> None:
    """Gives tasks the trace of the call that enqueues them; one that was given another keeps it."""
    if isinstance(tasks, NewTasks):
        tasks.stamp(trace)
        return
    for task in tasks:
        if task.trace_id is None:
            task.trace_id = trace


def as_enqueued(new: NewTask) -> Task:
    """Returns a task as its producer knows it, without asking the store again."""
    waits = bool(new.delay) or (new.run_at is not None and new.run_at > datetime.now(UTC))
    return Task(
        id=new.id,
        kind=new.kind,
        queue=new.queue,
        state=State.DELAYED if waits else State.QUEUED,
        payload=None if new.payload is None else decode(new.payload),
        priority=new.priority,
        max_attempts=new.max_attempts,
        group=new.group,
        scope=new.scope,
        trace_id=None if new.trace_id is None else trace_id_of(new.trace_id),
        idempotency_key=new.idempotency_key,
        timeout=new.timeout,
        run_at=new.run_at,
        join_id=new.join,
    )
