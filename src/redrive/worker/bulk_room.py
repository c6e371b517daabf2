"""Bounds how many tasks of bulk kinds a worker has in its memory: a call needs one slot, however many tasks it has."""

from __future__ import annotations

from collections import Counter

from redrive.handlers.registry import Registry
from redrive.worker.loop_signal import LoopSignal

# Of one kind, in calls that run or are being filled up. One claim more may come, and what is not settled yet is still
# there: 5,000 with the claims of a worker of 1,000 slots.
MOST_IN_CALLS = 4_000


class BulkRoom:
    """Counts tasks of each bulk kind from their claim to the end of their call. A queue in which all kinds of this
    application are bulk kinds is not claimed from while one of them has enough: its tasks would wait in memory, with
    leases that have to be renewed, and others could not take them. Slots stay free for other queues meanwhile."""

    def __init__(self, registry: Registry, queues: tuple[str, ...], signal: LoopSignal) -> None:
        self._queues = queues
        self._signal = signal
        self._held: Counter[str] = Counter()
        self._full: set[str] = set()  # queues
        kinds = list(registry.handlers.values())
        mixed = {handler.queue for handler in kinds if not handler.bulk}
        self._queue_of = {handler.kind: handler.queue for handler in kinds if handler.queue not in mixed}

    def queues(self) -> tuple[str, ...]:
        """Returns the queues that the worker may claim from now, in their order."""
        return self._queues if not self._full else tuple(one for one in self._queues if one not in self._full)

    def left(self, kind: str) -> int:
        """Returns how many more tasks of a kind may be claimed to fill up a call."""
        return max(MOST_IN_CALLS - self._held[kind], 0) if kind in self._queue_of else MOST_IN_CALLS

    def take(self, kind: str, count: int) -> None:
        """Counts tasks that are claimed for calls."""
        self._held[kind] += count
        if self._held[kind] >= MOST_IN_CALLS and kind in self._queue_of:
            self._full.add(self._queue_of[kind])

    def give_back(self, kind: str, count: int) -> None:
        """Counts tasks whose call has ended, or that did not come; there may be more to claim."""
        self._held[kind] -= count
        queue = self._queue_of.get(kind)
        if queue in self._full and self._held[kind] < MOST_IN_CALLS:
            self._full.discard(queue)
            self._signal.look()
