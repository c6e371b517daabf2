"""Lists what can be said about a kind, and about a task when it is enqueued, besides its kind and payload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict, TypeVar
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.kernel.circuit import Circuit
from redrive.kernel.wording import seconds_of, suggestion

DEFAULT_HISTORY = "default"
LONGEST_HISTORY_S = 36_500 * 86_400.0


class TaskOptions(TypedDict, total=False):
    """What can be said about a task besides its kind and payload: ``make_task`` checks it, and whatever enqueues takes
    it."""

    queue: str | None
    priority: int | None
    delay: float | None
    run_at: datetime | None
    max_attempts: int | None
    timeout: float | None
    group: str | None
    scope: str | None
    trace_id: str | None
    idempotency_key: str | None
    join: UUID | None


class EnqueueOptions(TaskOptions, total=False):
    """The options of ``App.enqueue``: also where the task goes."""

    connection: Any
    on: str | None


class NewTaskOptions(TaskOptions, total=False):
    """What a feature can say about a task that it makes: also who reacts to it, and what that wants to know then."""

    feature: str | None
    facts: Mapping[str, Any] | None


Given = TypeVar("Given", bound=TaskOptions)


class KindOptions(TypedDict, total=False):
    """The options of ``App.task``."""

    queue: str
    max_attempts: int
    timeout: float | None
    priority: int
    isolation: str | None
    bulk: int | None
    payload: Any
    concurrency: int | None
    rate_limit_ms: int | None
    deterministic: tuple[type[BaseException], ...]
    backoff_base: float | None
    backoff_max: float | None
    public: Iterable[str]
    history: str | float | None
    circuit: Circuit | bool | None
    preload: Iterable[str]


def check_options(options: Given) -> Given:
    """Returns the options, or refuses names that are none."""
    known = EnqueueOptions.__annotations__
    if not options.keys() <= known.keys():
        unknown = next(name for name in options if name not in known)
        raise InvalidInput(f"there is no enqueue option {unknown!r}", hint=suggestion(unknown, known))
    return options


def check_history(kind: str, given: object) -> float | None:
    """Returns ``history=`` of a kind, how long its completed tasks are kept, in seconds; None: as long as those of all
    kinds, 0: not at all."""
    if given == DEFAULT_HISTORY:
        return None
    if given is None:
        return 0.0
    if isinstance(given, str) and (found := seconds_of(given)) is not None:
        given = found
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= LONGEST_HISTORY_S:
        raise InvalidInput(
            f"history of {kind} must be a time such as '15m', '1h' or '2d', seconds, or None, not {given!r}",
            hint="None or 0 keeps nothing of completed tasks; left out, REDRIVE_HISTORY_DAYS holds",
        )
    return float(given)
