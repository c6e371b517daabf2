"""How things went: the store's time series as lists to draw, over an hour, a day, a week, a month or a year."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter

from redrive.errors import InvalidInput
from redrive.kernel.ports.store import Store
from redrive.kernel.series import (
    ALL,
    Document,
    Resolution,
    SeriesQuery,
    SeriesRow,
    Tally,
    add,
    from_document,
    quantile,
    start_of,
)

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
RATE_MINUTES = 60


@dataclass(slots=True, frozen=True)
class Period:
    """A time span up to now: so many steps, made of rows of one resolution."""

    resolution: Resolution
    step: timedelta
    steps: int

    def moments(self, now: datetime) -> list[datetime]:
        """Returns when each step begins, oldest first; the last one is still going on."""
        last = start_of(now, self.step)
        return [last - self.step * back for back in reversed(range(self.steps))]


PERIODS = {
    "1h": Period(Resolution.MINUTE, timedelta(minutes=1), 60),
    "24h": Period(Resolution.MINUTE, timedelta(minutes=15), 96),
    "7d": Period(Resolution.HOUR, timedelta(hours=1), 168),
    "30d": Period(Resolution.HOUR, timedelta(hours=6), 120),
    "1y": Period(Resolution.DAY, timedelta(days=1), 365),
}

Counts = list[int | None]
Values = list[float | None]


@dataclass(slots=True)
class History:
    """How things went, step by step: each list has a value for each of ``moments``, the beginnings of the steps. None
    where nobody looked: no worker ran then, or it was too long ago. The last step is still going on.

    Counts: ``started``, ``completed``, ``failed`` (for good), ``cancelled`` (while it ran), ``retried``, and
    ``attempts_failed``, failed attempts by failure type. Levels, as the mean of the looks of a step: ``depth`` (queued:
    ready and not started), ``delayed``, ``running``, ``paused``, ``dead`` (failed and not dealt with). In seconds:
    ``oldest_age``, the longest that a queue's first ready task had waited (of queues: None for a kind), and ``wait``
    (from when a task was due to its first start) and ``run`` as ``p50``, ``p95``, ``p99``; 3600 means that or more.
    """

    period: str
    queue: str | None
    kind: str | None
    step: timedelta
    moments: list[datetime]
    started: Counts = field(default_factory=list)
    completed: Counts = field(default_factory=list)
    failed: Counts = field(default_factory=list)
    cancelled: Counts = field(default_factory=list)
    retried: Counts = field(default_factory=list)
    attempts_failed: dict[str, Counts] = field(default_factory=dict)
    depth: Values = field(default_factory=list)
    delayed: Values = field(default_factory=list)
    running: Values = field(default_factory=list)
    paused: Values = field(default_factory=list)
    dead: Values = field(default_factory=list)
    oldest_age: Values = field(default_factory=list)
    wait: dict[str, Values] = field(default_factory=dict)
    run: dict[str, Values] = field(default_factory=dict)

    @property
    def step_seconds(self) -> float:
        return self.step.total_seconds()


@dataclass(slots=True)
class Rate:
    """Tasks that completed and failed for good in each minute of the last hour, oldest first."""

    completed: list[int] = field(default_factory=lambda: [0] * RATE_MINUTES)
    failed: list[int] = field(default_factory=lambda: [0] * RATE_MINUTES)

    @property
    def failure_rate(self) -> float | None:
        """The share of what ended in this hour that failed; None when nothing ended."""
        ended = sum(self.completed) + sum(self.failed)
        return sum(self.failed) / ended if ended else None


@dataclass(slots=True)
class Rates:
    """The last hour of each kind and of each queue that ended something, minute by minute; the last minute is still
    going on."""

    moments: list[datetime]
    kinds: dict[str, Rate] = field(default_factory=dict)
    queues: dict[str, Rate] = field(default_factory=dict)


async def history(store: Store, period: str, queue: str | None = None, kind: str | None = None) -> History:
    """Returns how things went over a period: with everything, or a queue, a kind, a kind in a queue."""
    span = parse_period(period)
    moments = span.moments(await store.now())
    rows = await store.series(SeriesQuery(span.resolution, moments[0], queue, kind))
    return add_up(History(period, queue, kind, span.step, moments), rows)


def add_up(asked: History, rows: Iterable[SeriesRow]) -> History:
    """Returns the history that was asked for, filled from rows of the store."""
    _fill(asked, _added_up(rows, asked))
    return asked


async def rates(store: Store) -> Rates:
    """Returns the last hour of all kinds and queues."""
    moments = PERIODS["1h"].moments(await store.now())
    found = Rates(moments)
    places = {moment: index for index, moment in enumerate(moments)}
    for row in await store.series(SeriesQuery(Resolution.MINUTE, moments[0], ends=True)):
        if row.at in places:
            _count(found.kinds.setdefault(row.kind, Rate()), places[row.at], row)
            _count(found.queues.setdefault(row.queue, Rate()), places[row.at], row)
    return found


def parse_period(text: str) -> Period:
    if text not in PERIODS:
        raise InvalidInput(f"{text[:40]!r} is not a period", hint=f"periods are: {', '.join(PERIODS)}")
    return PERIODS[text]


def _count(rate: Rate, place: int, row: SeriesRow) -> None:
    rate.completed[place] += row.completed
    rate.failed[place] += row.failed


@dataclass(slots=True)
class _Step:
    """What is known of one step: how often somebody looked, and what was counted."""

    looks: int = 0
    document: Document = field(default_factory=dict)
    counted: bool = False
    tally: Tally = field(default_factory=Tally)


def _added_up(rows: Iterable[SeriesRow], asked: History) -> list[_Step]:
    steps = {moment: _Step() for moment in asked.moments}
    everything = asked.queue is None and asked.kind is None
    for row in rows:
        step = steps.get(start_of(row.at, asked.step))
        if step is None:
            continue
        overall = row.queue == ALL
        step.looks += row.document.get("samples", 0) if overall else 0
        if overall is everything:
            add(step.document, row.document)
            step.counted = True
    for step in steps.values():
        step.tally = from_document(step.document)
    return list(steps.values())


def _fill(found: History, steps: list[_Step]) -> None:
    def counts(of: Callable[[Tally], int]) -> Counts:
        return [of(step.tally) if step.counted or step.looks else None for step in steps]

    def levels(state: str) -> Values:
        return [step.tally.depth.get(state, 0) / step.looks if step.looks else None for step in steps]

    for name in ("started", "completed", "failed", "cancelled", "retried"):
        setattr(found, name, counts(attrgetter(name)))
    for name in sorted({name for step in steps for name in step.tally.failures}):
        found.attempts_failed[name] = counts(partial(_failures, name))
    found.depth, found.dead = levels("queued"), levels("failed")
    found.delayed, found.running, found.paused = levels("delayed"), levels("running"), levels("paused")
    found.oldest_age = [_oldest(step, found.kind) for step in steps]
    found.wait = {name: [quantile(step.tally.wait, q) for step in steps] for name, q in QUANTILES.items()}
    found.run = {name: [quantile(step.tally.run, q) for step in steps] for name, q in QUANTILES.items()}


def _failures(failure_type: str, tally: Tally) -> int:
    return tally.failures.get(failure_type, 0)


def _oldest(step: _Step, kind: str | None) -> float | None:
    """Nothing waited if somebody looked and saw nothing. Kinds are not looked at: a queue knows its first task."""
    return (step.tally.oldest or 0.0) if step.looks and kind is None else None


# -- a row of numbers as a line of small bars --------------------------------------------------------------------------


BARS = "▁▂▃▄▅▆▇█"
GAP = " "


def sparkline(values: Sequence[float | None], width: int = 60) -> str:
    """Returns a bar for each value, or for the highest of several that stand beside each other; a gap for what is not
    known. The highest bar is the highest value."""
    size = -(-len(values) // width) if values else 1
    shown = [_highest(values[i : i + size]) for i in range(0, len(values), size)]
    top = max((value for value in shown if value is not None), default=0) or 1
    return "".join(GAP if value is None else _bar(value / top) for value in shown)


def _highest(part: Sequence[float | None]) -> float | None:
    return max((value for value in part if value is not None), default=None)


def _bar(share: float) -> str:
    return BARS[min(round(share * (len(BARS) - 1)), len(BARS) - 1)]
