"""Rates before, during and after a storm, from the times that the store wrote down itself."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from storm.rows import Row


@dataclass(slots=True, frozen=True)
class Phases:
    """Moments on the clock: the storm lies between ``began`` and ``ended``."""

    baseline: float
    began: float
    ended: float
    calm: float  # the backlog was back to normal
    over: float
    end_of_baseline: float | None = None  # where something else lies between it and the storm


@dataclass(slots=True, frozen=True)
class Rates:
    baseline: float
    stress: float
    recovery: float
    recovered_after: float | None
    longest: float  # from offer to end, of what was offered since the storm began
    offered: tuple[float, float]  # before the storm, and after it

    @property
    def stress_ratio(self) -> float:
        return self.stress / self.baseline if self.baseline else 0.0

    @property
    def recovery_ratio(self) -> float:
        """What is completed again, of what was before the storm, or of what is offered where that is less: on a busy
        machine the producer is late, and a backlog from the start may have been worked off in between."""
        wanted = min(self.baseline, self.offered[1])
        return self.recovery / wanted if wanted else 0.0

    @property
    def offers_ratio(self) -> float:
        return self.offered[1] / self.offered[0] if self.offered[0] else 0.0


def measure(rows: list[Row], offers: dict[str, float], phases: Phases, usual_backlog: int) -> Rates:
    """Completions per second in each phase, and when the backlog was first back to normal. What was offered while
    nothing could be enqueued is backlog too, so tasks count from their offer."""
    finished = sorted(row.finished for row in rows if row.finished is not None)
    offered = sorted(offers[row.key] for row in rows if row.key in offers)
    spans = ((offers[row.key], row.finished) for row in rows if row.key in offers and row.finished is not None)
    return Rates(
        _rate(finished, phases.baseline, phases.end_of_baseline or phases.began),
        _rate(finished, phases.began, phases.ended),
        _rate(finished, phases.calm, phases.over),
        _recovered(offered, finished, phases, usual_backlog),
        max((end - start for start, end in spans if start >= phases.began), default=0.0),
        (
            _rate(offered, phases.baseline, phases.end_of_baseline or phases.began),
            _rate(offered, phases.calm, phases.over),
        ),
    )


def _rate(times: list[float], start: float, end: float) -> float:
    if end <= start:
        return 0.0
    return (bisect_left(times, end) - bisect_left(times, start)) / (end - start)


def _recovered(offered: list[float], finished: list[float], phases: Phases, usual: int) -> float | None:
    """Seconds from the end of the storm until no more waits than usual; None if that did not happen."""
    at = phases.ended
    while at <= phases.over:
        if bisect_right(offered, at) - bisect_right(finished, at) <= usual:
            return at - phases.ended
        at += 0.02
    return None
