"""What the handler of items leaves in an item's task for the next time: the state of its ``Snooze``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(slots=True, frozen=True)
class ItemMemo:
    """How far an item is with its provider. ``new``, ``polled``, ``heard`` and ``stepped`` are about the call that was
    just made."""

    job: str | None = None  # the provider's id, once it was started
    new: bool = False  # it was started now: the next item of its lane may come
    polls: int | None = None  # that have told something about the job
    polled: bool = False  # it was looked at now
    heard: bool = False  # that look followed a call of the provider
    progress: float | None = None
    asked: bool = False  # the provider was asked to end it
    tries: int = 0  # starts that failed while the provider was there for others
    since: float | None = None  # when the first of its starts, or of its last looks, failed, by the store's clock
    code: str | None = None  # what the provider called the last one, and what it counts as
    type: str | None = None
    stepped: bool = False  # it steps out of its lane now, which goes on without it
    flight: bool = False  # it waits for a place: as many jobs run as may
    why: str | None = None  # what it waits for, in words
    unsure: bool = False  # a start may have reached the provider, though no job came back
    unknown: bool = False  # it ends without the provider's word

    @classmethod
    def of(cls, state: Mapping[str, Any] | None) -> ItemMemo:
        """Returns what was left; of nothing, that nothing was done. What another version has left besides is passed
        over."""
        return cls(**{name: value for name, value in (state or {}).items() if name in _USUAL})

    def state(self) -> dict[str, Any]:
        """Returns it as JSON, without what goes without saying."""
        return {name: value for name, usual in _USUAL.items() if (value := getattr(self, name)) != usual}


_USUAL = {one.name: one.default for one in fields(ItemMemo)}
