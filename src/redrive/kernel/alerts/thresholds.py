"""From when on a rule is broken: for all queues, and for single ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from redrive.kernel.figures import MOST_COUNTED, MOST_WAITING

EVERY_QUEUE = "*"
# Those that nobody sets, in seconds; the product and the rules of Prometheus both take them from here.
UNSEALED_S = 600.0
PINNED_S = 300.0
CIRCUIT_OPEN_S = 300.0
NOT_EVALUATED_S = 180.0
SPANS = ("_age", "_for")  # how those end that are seconds


@dataclass(slots=True, frozen=True)
class Thresholds:
    """Those of one queue; numbers of tasks, and seconds where a name ends in ``_age`` or ``_for``.

    ``failed``: more failed tasks than this, for ``failed_for``. ``depth``: more queued ones for ``depth_for``, and not
    fewer than at its beginning. ``pending``: more that have waited for ``pending_age``, and at least
    ``pending_share`` of all that are queued. ``surge``: more terminal failures within ten minutes. ``oldest_age``: how
    long the first task may wait. ``no_worker_for``: how long work may be there without a worker. ``off``: rules that
    do not hold for the queue."""

    failed: int = 0
    failed_for: float = 300.0
    depth: int = 100
    depth_for: float = 600.0
    pending: int = 0
    pending_share: float = 0.0
    pending_age: float = 300.0
    surge: int = 20
    oldest_age: float = 900.0
    no_worker_for: float = 120.0
    off: list[str] = field(default_factory=list)

    def enough_waiting(self, queued: int) -> int:
        """Returns how many of so many queued tasks have to have waited for ``pending_age``: ``pending`` or more, and
        the share. Not more than are looked at: of a backlog beyond that, so many late ones are enough."""
        return min(max(self.pending + 1, math.ceil(self.pending_share * queued)), MOST_WAITING)

    def most_waiting(self, queued: int) -> int:
        """Returns how many of them are counted at most. A little more than is enough: who compares the count with what
        is queued a moment later gets the same answer."""
        return min(max(MOST_COUNTED, math.ceil(self.enough_waiting(queued) * 1.25)), MOST_WAITING)

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name != "off" and not 0 <= value <= 1e9:
                raise ValueError(f"{name} must be from 0 to 1,000,000,000, not {value}")
        if self.pending_share > 1:
            raise ValueError(f"pending_share is a share, from 0 to 1, not {self.pending_share}")


THRESHOLDS = tuple(one.name for one in fields(Thresholds))


@dataclass(slots=True, frozen=True)
class Limits:
    """The thresholds of all queues, and of those that have their own."""

    every: Thresholds = field(default_factory=Thresholds)
    queues: Mapping[str, Thresholds] = field(default_factory=dict)

    def of(self, queue: str) -> Thresholds:
        return self.queues.get(queue, self.every)

    def holds(self, rule: str, queue: str) -> bool:
        """Returns whether a rule holds for a queue."""
        return rule not in self.of(queue).off


def merged(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns what is written for each queue, with what is written for all of them where it says nothing."""
    every = dict(tables.get(EVERY_QUEUE, {}))
    return {queue: {**every, **own} for queue, own in tables.items()}
