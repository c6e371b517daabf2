"""Bulk handlers: many tasks of one kind in one call, answered one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.handlers.context import Context
from redrive.kernel.outcome import Verdict

UNANSWERED = object()
LOGGED_IDS = 20


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
        """The outcome of this task: a value, or Snooze/Retry/Fail/Cancel, or an exception that failed it."""
        self._answer = value

    @property
    def answered(self) -> bool:
        return self._answer is not UNANSWERED


class Batch(Sequence[Item]):
    """What a bulk handler gets. Items without an answer complete when the handler returns, fail when it raises."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = list(items)

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
        """What log records of this call carry."""
        first = self._items[0].context.log_fields()
        shared = {name: first[name] for name in ("kind", "queue", "worker_id")}
        return shared | {"tasks": len(self), "task_ids": [str(item.id) for item in self._items[:LOGGED_IDS]]}


def answers(batch: Batch, returned: Any, error: BaseException | None) -> list[Any]:
    """One answer per item: its own, else from the handler's returned list, else the common end of the call."""
    if error is not None:
        return [item._answer if item.answered else error for item in batch]
    if returned is None or isinstance(returned, Verdict):
        return [item._answer if item.answered else returned for item in batch]
    if not isinstance(returned, Sequence) or isinstance(returned, str | bytes) or len(returned) != len(batch):
        problem = InvalidInput(
            f"a bulk handler must return None or a list of {len(batch)} answers, one per item, "
            f"not {type(returned).__name__}"
        )
        return [item._answer if item.answered else problem for item in batch]
    return [item._answer if item.answered else value for item, value in zip(batch, returned, strict=True)]
