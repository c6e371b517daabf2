"""Checks a task that is enqueued later, as a store does with one that is enqueued now."""

from __future__ import annotations

from redrive.errors import InvalidInput
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
