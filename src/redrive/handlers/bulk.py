"""Defines what bulk handlers get: many tasks of one kind in one call, each with an outcome of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.handlers.context import Context
from redrive.handlers.functions import HandlerNotRun, insist_it_ran
from redrive.kernel.outcome import Verdict

UNANSWERED = object()
MOST_IDS_LOGGED = 20


class Item:
    """One task of a bulk call."""

    def __init__(self, context: Context, payload: Any) -> None:
        self.context = context
        self.payload = payload
        self._answer: Any = UNANSWERED

    @property
    def id(self) -> UUID:
        return self.context.task_id

    def answer(self, value: Any = None) -> None:
        """Sets the outcome of this task: a value, or Snooze/Retry/Fail/Cancel, or an exception that failed it."""
        self._answer = value

    @property
    def answered(self) -> bool:
        """True when an outcome was set."""
        return self._answer is not UNANSWERED


class Bulk(Sequence[Item]):
    """The tasks of one call of a bulk handler. Items without an answer complete when the handler returns, fail when it
    raises."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = list(items)
        self._fields: dict[str, Any] | None = None

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    @property
    def cancelled(self) -> bool:
        """True once the whole call should stop. From then on, items without an answer are not completed when the
        handler returns, but cancelled, failed by their timeout, or handed back."""
        # Not by asking one after the other: only a handler that hears "stop" has been told, and by all of them.
        stopped = bool(self._items) and all(item.context._stop is not None for item in self._items)
        return stopped and all(item.context.cancelled for item in self._items)

    def log_fields(self) -> dict[str, Any]:
        """Returns what log records of this call carry: what is the same for all of its tasks, how many they are, and
        the first of their ids."""
        if self._fields is None:
            first, *others = [item.context.log_fields() for item in self._items]
            shared = {name: value for name, value in first.items() if all(other[name] == value for other in others)}
            shared.pop("task_id", None)
            self._fields = shared | {
                "tasks": len(self),
                "task_ids": [str(item.id) for item in self._items[:MOST_IDS_LOGGED]],
            }
        return self._fields


def collect_answers(bulk: Bulk, returned: Any, error: BaseException | None) -> list[Any]:
    """Returns one answer per item: its own, else from the handler's returned list, else the common end of the call."""
    if error is not None:
        return [item._answer if item.answered else error for item in bulk]
    if returned is None or isinstance(returned, Verdict):
        return [item._answer if item.answered else returned for item in bulk]
    if not isinstance(returned, Sequence) or isinstance(returned, str | bytes) or len(returned) != len(bulk):
        problem = _problem(returned, len(bulk))
        return [item._answer if item.answered else problem for item in bulk]
    return [item._answer if item.answered else value for item, value in zip(bulk, returned, strict=True)]


def _problem(returned: Any, count: int) -> Exception:
    """Returns what is wrong with a returned value that is no list of answers."""
    try:
        insist_it_ran(returned)
    except HandlerNotRun as error:
        return error
    return InvalidInput(
        f"a bulk handler must return None or a list of {count} answers, one per item, not {type(returned).__name__}"
    )
