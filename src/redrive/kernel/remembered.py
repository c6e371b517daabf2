"""A bounded cache of what was computed about objects that do not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Remembered(Generic[T]):
    """Looks results up by the object's identity. Objects are kept alive, so that no other one gets the id of one that
    is gone."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._found: dict[int, tuple[object, T]] = {}

    def get(self, one: Any, work_out: Callable[[Any], T]) -> T:
        known = self._found.get(id(one))
        if known is not None:
            return known[1]
        if len(self._found) >= self._room:
            self._found.clear()  # simpler than the oldest, and rare: it holds more than an application has
        found = work_out(one)
        self._found[id(one)] = (one, found)
        return found
