"""How things went: the store's time series as lists to draw, over an hour, a day, a week, a month or a year."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Annotated

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
from redrive.ops.fields import Open, Seen

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
    """How things went, step by step: each list has a value for each of ``moments``, where a step begins; null where
    nobody looked: no worker ran then, or it was too long ago. The last step is still going on. Times are in seconds."""

    period: Seen[str]
    queue: Seen[str | None]
    kind: Seen[str | None]
    step_seconds: Seen[float]
    moments: Seen[list[datetime]]
    started: Seen[Counts] = field(default_factory=list)
    completed: Seen[Counts] = field(default_factory=list)
    failed: Annotated[Counts, Open("For good.")] = field(default_factory=list)
    cancelled: Annotated[Counts, Open("While they ran.")] = field(default_factory=list)
    retried: Seen[Counts] = field(default_factory=list)
    attempts_failed: Annotated[dict[str, Counts], Open("Failed attempts, by failure type.")] = field(
        default_factory=dict
    )
    depth: Annotated[Values, Open("Ready and not started; this and the next four as the mean of the step's looks.")] = (
        field(default_factory=list)
    )
    delayed: Seen[Values] = field(default_factory=list)
    running: Seen[Values] = field(default_factory=list)
    paused: Seen[Values] = field(default_factory=list)
    dead: Annotated[Values, Open("Failed, and not dealt with.")] = field(default_factory=list)
    oldest_age: Annotated[
        Values, Open("How long the first ready task of a queue had waited, at most; of a kind null.")
    ] = field(default_factory=list)
    wait: Annotated[
        dict[str, Values], Open("From when a task was due to its first start: p50, p95, p99; 3600 means that or more.")
    ] = field(default_factory=dict)
    run: Annotated[dict[str, Values], Open("How long attempts ran: p50, p95, p99; 3600 means that or more.")] = field(
        default_factory=dict
    )

    @property
    def step(self) -> timedelta:
        return timedelta(seconds=self.step_seconds)


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
    return add_up(History(period, queue, kind, span.step.total_seconds(), moments), rows)


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


def check_period(text: str) -> str:
    parse_period(text)
    return text


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
