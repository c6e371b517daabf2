"""Remembers where to start reading each lane, so that a claim never walks index entries that were claimed long ago.

PostgreSQL keeps an index entry until no transaction can see its row any more. One long transaction anywhere in the
database stops that, and a queue read from the left edge of its index then walks every dead entry on each claim.
So a worker remembers, per lane and priority, the position after the last row it claimed, and starts there.

What lies behind is rare: a row that was locked by a worker that died, or one whose producer committed late. Such rows
are found by a sweep from the start, spaced so that sweeping costs at most a few percent of the time, and at once when
a notification names an older position.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from redrive.kernel.task import PRIORITY_MAX, PRIORITY_MIN

DEFAULT_PRIORITY = 0
SWEEP_EVERY_S = 1.0
SWEEP_AFTER_SHORT_S = 0.02
SWEEP_COST_SHARE = 20.0
MOST_MARKS = 16

Segments = tuple[list[str], list[str], list[int], list[int], list[int]]


class ScanPositions:
    """Holds positions per (queue, lane) and priority. Time is given by the caller (any monotonic clock)."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str], dict[int, int]] = {}
        self._next_sweep = 0.0
        self._sweeping = False
        self._sweep_cost = 0.0
        self._swept_at = 0.0
        # The highest position heard of, now and when the last look began.
        self._heard = 0
        self._heard_before = 0

    def segments(self, queues: Sequence[str], now: float) -> Segments:
        """Returns columns (queue, lane, from priority, from position, until priority), in the order of the queues."""
        self._sweeping = now >= self._next_sweep
        self._heard_before = self._heard
        out: Segments = ([], [], [], [], [])
        for queue in queues:
            lanes = {lane for known, lane in self._marks if known == queue} | {""}
            for lane in sorted(lanes):
                marks = {} if self._sweeping else self._marks.get((queue, lane), {})
                for priority, position, until in _ranges(marks):
                    for column, value in zip(out, (queue, lane, priority, position, until), strict=True):
                        column.append(value)  # type: ignore[attr-defined]
        return out

    def learn(
        self,
        rows: Iterable[tuple[str, str, int, int]],
        *,
        short: bool,
        cost: float,
        now: float,
        emptied: Sequence[str] = (),
    ) -> None:
        """Takes in what a claim returned: (queue, lane, priority, position) of each row, and how long it took.
        ``emptied``: queues whose open lane was claimed to its end, as far as it was read."""
        latest: dict[tuple[str, str, int], int] = {}
        for queue, lane, priority, position in rows:
            latest[queue, lane, priority] = max(position, latest.get((queue, lane, priority), 0))
        for (queue, lane, priority), position in latest.items():
            marks = self._marks.setdefault((queue, lane), {})
            marks.pop(priority, None)
            marks[priority] = position + 1
            self._heard = max(self._heard, position)
            if len(marks) > MOST_MARKS:
                # The one not claimed from for longest: its rows are found through the range before it.
                del marks[next(iter(marks))]
        if self._sweeping:
            for queue in emptied:
                self._found_empty(queue)
            self._sweep_cost = cost
            self._swept_at = now
            self._next_sweep = now + max(SWEEP_EVERY_S, SWEEP_COST_SHARE * cost)
        if short:
            soon = now + max(SWEEP_AFTER_SHORT_S, SWEEP_COST_SHARE * self._sweep_cost)
            self._next_sweep = min(self._next_sweep, soon)

    def _found_empty(self, queue: str) -> None:
        """Notes that a sweep left nothing of what was known before it: also a worker that never claims starts behind
        that. Without a claim the only priority to be expected is the default one."""
        marks = self._marks.setdefault((queue, ""), {})
        for priority in {DEFAULT_PRIORITY, *marks}:
            marks[priority] = max(marks.get(priority, 0), self._heard_before + 1)

    def rewind(self, queue: str, position: int) -> None:
        """Starts again from ``position``, where a row became visible late. ``*`` means anywhere."""
        if queue == "*":
            # As soon as the last sweep's cost allows: hints must not make a dear sweep frequent.
            self._next_sweep = min(self._next_sweep, self._swept_at + SWEEP_COST_SHARE * self._sweep_cost)
            return
        self._heard = max(self._heard, position)
        for (known, _), marks in self._marks.items():
            if known == queue:
                for priority, mark in marks.items():
                    if mark > position:
                        marks[priority] = position


def _ranges(marks: dict[int, int]) -> Iterable[tuple[int, int, int]]:
    """Splits all priorities at the known ones: each known priority starts at its mark and reaches to the next."""
    known = sorted(marks)
    if not known or known[0] > PRIORITY_MIN:
        yield PRIORITY_MIN, 0, known[0] - 1 if known else PRIORITY_MAX
    for index, priority in enumerate(known):
        following = known[index + 1] if index + 1 < len(known) else PRIORITY_MAX + 1
        yield priority, marks[priority], following - 1
