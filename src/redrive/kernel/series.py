"""Small time series of the product's own: what is counted, how counts add up, and percentiles from them.

A worker counts in a ``Tally`` for each queue and kind and sends it with its heartbeat; the store adds these up by the
minute, the hour and the day. Everything in a tally adds up, so that a day is the sum of its minutes, and a queue that
of its kinds. Percentiles do not add up: they are computed from the buckets when somebody looks.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import accumulate
from typing import Any

from redrive.kernel.machine import Transition
from redrive.kernel.reads import Count
from redrive.kernel.task import LIVE, State

# Upper ends of the buckets of waiting and run times, in seconds. One more bucket, the last, has no end.
BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0),
)
BOUNDS_MS = tuple(bound * 1000 for bound in BOUNDS)
BUCKETS = len(BOUNDS) + 1

MOST_SERIES = 500  # pairs of queue and kind that have a series of their own; see ``admit``
OTHER = "other"
ALL = ""  # as a kind: all of a queue; as a queue and a kind: everything

Key = tuple[str, str]  # queue and kind
Document = dict[str, Any]  # a tally as JSON values: numbers, and numbers by name


class Resolution(StrEnum):
    """How long a row of a series is."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"

    @property
    def step(self) -> timedelta:
        return _STEPS[self]

    def start(self, at: datetime) -> datetime:
        """Returns when the row that a moment falls into begins, in UTC."""
        return start_of(at, self.step)


_STEPS = {
    Resolution.MINUTE: timedelta(minutes=1),
    Resolution.HOUR: timedelta(hours=1),
    Resolution.DAY: timedelta(days=1),
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def start_of(at: datetime, step: timedelta) -> datetime:
    """Returns when the step that a moment falls into begins; steps are counted from 1970, in UTC."""
    return _EPOCH + (at - _EPOCH) // step * step


def _buckets() -> list[int]:
    return [0] * BUCKETS


@dataclass(slots=True)
class Tally:
    """Counts of one queue and kind over some time, and samples of how much was there.

    ``failures`` counts failed attempts by failure type, ``failed`` tasks whose last attempt failed. ``wait`` and
    ``run`` are buckets by ``BOUNDS``, with the sum of what is in them. ``samples`` says how often ``depth`` (tasks by
    state) was looked at: it holds the sum of these looks. ``oldest``: the longest that the first ready task had waited.
    """

    started: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    wait: list[int] = field(default_factory=_buckets)
    wait_ms: float = 0
    run: list[int] = field(default_factory=_buckets)
    run_ms: float = 0
    samples: int = 0
    depth: dict[str, int] = field(default_factory=dict)
    oldest: float | None = None

    def waited(self, seconds: float) -> None:
        """Counts how long a task waited from when it was due to its start."""
        self.wait[bisect_left(BOUNDS, seconds)] += 1
        self.wait_ms += seconds * 1000

    def ran(self, ms: float) -> None:
        """Counts how long an attempt ran."""
        self.run[bisect_left(BOUNDS_MS, ms)] += 1
        self.run_ms += ms

    def failed_by(self, failure_type: str) -> None:
        """Counts a failed attempt."""
        self.failures[failure_type] = self.failures.get(failure_type, 0) + 1

    def merge(self, more: Tally) -> None:
        """Adds what another one has counted, exactly: a document's sums are rounded, and these must never shrink."""
        for name in _COUNTS:
            if n := getattr(more, name):
                setattr(self, name, getattr(self, name) + n)
        for name in _MAPS:
            mine = getattr(self, name)
            for key, n in list(getattr(more, name).items()):
                mine[key] = mine.get(key, 0) + n
        for name in _HISTOGRAMS:
            if any(counts := getattr(more, name)):
                setattr(self, name, [n + m for n, m in zip(getattr(self, name), counts, strict=True)])

    def document(self) -> Document:
        """Returns it as JSON values, without what is zero."""
        found: Document = {name: round(n) for name in _COUNTS if (n := getattr(self, name))}
        found |= {name: dict(n) for name in _MAPS if (n := getattr(self, name))}
        for name in _HISTOGRAMS:
            if sparse := {str(index): n for index, n in enumerate(getattr(self, name)) if n}:
                found[name] = sparse
        return found if self.oldest is None else {**found, "oldest": round(self.oldest, 3)}


def _fields(*kinds: str) -> tuple[str, ...]:
    return tuple(one.name for one in fields(Tally) if one.type in kinds)


# How each of them adds up follows from what it is, so that none can be forgotten.
_COUNTS, _MAPS, _HISTOGRAMS = _fields("int", "float"), _fields("dict[str, int]"), _fields("list[int]")


def from_document(values: Document) -> Tally:
    """Returns the tally that such a document was made of. What is not known here is left out: another version's."""
    tally = Tally(oldest=values.get("oldest"))
    for name in _COUNTS:
        setattr(tally, name, values.get(name, 0))
    for name in _MAPS:
        setattr(tally, name, dict(values.get(name, ())))
    for name in _HISTOGRAMS:
        counts = getattr(tally, name)
        for index, n in values.get(name, {}).items():
            counts[min(int(index), BUCKETS - 1)] += n
    return tally


def add(mine: Document, more: Document) -> None:
    """Adds what another document has counted. On documents, which hold only what is not zero: adding up takes most of
    what a fleet of many kinds costs."""
    for name, value in more.items():
        if isinstance(value, dict):
            counts = mine.setdefault(name, {})
            for key, n in value.items():
                counts[key] = counts.get(key, 0) + n
        elif name == "oldest":
            mine[name] = max(mine.get(name, 0), value)
        else:
            mine[name] = mine.get(name, 0) + value


def quantile(counts: Iterable[int], q: float) -> float | None:
    """Returns the value in seconds below which a share ``q`` lies, linear within its bucket; None of nothing.

    What lies in the last bucket is known to be ``BOUNDS[-1]`` or more, and given as ``BOUNDS[-1]``.
    """
    sums = list(accumulate(counts))
    if not sums or not sums[-1]:
        return None
    rank = q * sums[-1]
    index = next(i for i, n in enumerate(sums) if n and n >= rank)
    if index >= len(BOUNDS):
        return BOUNDS[-1]
    below, lower = (sums[index - 1], BOUNDS[index - 1]) if index else (0, 0.0)
    share = (rank - below) / (sums[index] - below)
    return lower + (BOUNDS[index] - lower) * min(max(share, 0.0), 1.0)


def admit(keys: Iterable[Key], known: Collection[Key] = (), most: int = MOST_SERIES) -> dict[Key, Key]:
    """Returns under which key each is counted. ``known`` have series already; after ``most`` of them a new kind is
    counted as ``other`` of its queue, and in a queue without any series as ``other`` of the queue ``other``."""
    own = set(known)
    queues = {queue for queue, _ in own}
    found: dict[Key, Key] = {}
    for key in keys:
        if key not in own and len(own) >= most:
            found[key] = (key[0] if key[0] in queues else OTHER, OTHER)
        else:
            own.add(key)
            queues.add(key[0])
            found[key] = key
    return found


class TallyTable(dict[Key, Tally]):
    """Tallies by queue and kind, made when they are asked for; no more than ``admit`` allows."""

    def __missing__(self, key: Key) -> Tally:
        if len(self) >= MOST_SERIES:
            key = admit([key], self)[key]
        return self.setdefault(key, Tally())


def count_end(tally: Tally, transition: Transition, instead: State | None = None) -> None:
    """Counts how an attempt ended. Whoever is put off or handed back has not failed. ``instead``: where it led, if that
    was elsewhere."""
    led = transition.to if instead is None else instead
    if transition.failure is not None:
        tally.failed_by(transition.failure.type.value)
        tally.retried += led not in (State.FAILED, State.CANCELLED)
    tally.completed += led is State.COMPLETED
    tally.failed += led is State.FAILED
    tally.cancelled += led is State.CANCELLED


@dataclass(slots=True, frozen=True)
class Cell:
    """A row of the series: what it is about."""

    resolution: Resolution
    at: datetime
    queue: str
    kind: str


Counted = tuple[datetime, Key, Document]


class Sums:
    """What is counted, added up by the minute and key, and then once for all rows that it belongs to."""

    def __init__(self, counted: Iterable[Counted] = ()) -> None:
        self._minutes: dict[tuple[datetime, Key], Document] = {}
        self.add(counted)

    def add(self, counted: Iterable[Counted]) -> None:
        for at, key, document in counted:
            add(self._minutes.setdefault((Resolution.MINUTE.start(at), key), {}), document)

    def cells(self, known: Collection[Key] = ()) -> dict[Cell, Document]:
        """Returns what is added to which rows. Each thing counts for its minute, hour and day, and there for its queue
        and kind, for its queue, and for everything. ``known``: see ``admit``."""
        names = admit(sorted({key for _, key in self._minutes if ALL not in key}), known)
        queues = {ALL, *(queue for queue, _ in names.values()), *(queue for queue, _ in known)}
        # First together, then once for each row: what is done for a row does not depend on how many names there are.
        together: dict[tuple[datetime, Key], Document] = {}
        for (at, key), document in self._minutes.items():
            row = names.get(key) or (key if key[0] in queues else (OTHER, key[1]))
            add(together.setdefault((at, row), {}), document)
        found: dict[Cell, Document] = {}
        for (at, key), document in together.items():
            for queue, kind in _levels(key):
                for resolution in Resolution:
                    add(found.setdefault(Cell(resolution, resolution.start(at), queue, kind), {}), document)
        return found


def sampled(at: datetime, counts: Iterable[Count], oldest: Mapping[str, datetime]) -> list[Counted]:
    """Returns a look at how much is there as something to add: exact totals, and since when the first ready task of
    each queue waits."""
    live = (count for count in counts if count.state in LIVE)
    return [
        (at, (ALL, ALL), {"samples": 1}),
        *((at, (count.queue, count.kind), {"depth": {count.state.value: count.n}}) for count in live),
        *((at, (queue, ALL), {"oldest": _age(at, since)}) for queue, since in oldest.items()),
    ]


def _age(at: datetime, since: datetime) -> float:
    return round(max((at - since).total_seconds(), 0.0), 3)


def _levels(key: Key) -> Iterator[Key]:
    yield from dict.fromkeys((key, (key[0], ALL), (ALL, ALL)))


@dataclass(slots=True, frozen=True)
class TallySheet:
    """What a worker has counted since the last sheet that the store took. A store takes a sheet once, however often it
    is sent: it remembers the ``id`` of a worker's last one."""

    id: str
    text: str


def write(tallies: Mapping[Key, Tally]) -> str:
    """Returns tallies as JSON text."""
    return json.dumps([[*key, tally.document()] for key, tally in tallies.items()], separators=(",", ":"))


def read(text: str, at: datetime) -> list[Counted]:
    """Returns tallies from such a text, as of a moment; none of what another version writes differently."""
    try:
        return [(at, (str(queue), str(kind)), _numbers(values)) for queue, kind, values in json.loads(text)]
    except (ValueError, TypeError, AttributeError):
        return []


def _numbers(values: Document) -> Document:
    """Returns the document; refuses what cannot be added."""
    for value in values.values():
        for n in value.values() if type(value) is dict else (value,):
            if type(n) is not int and type(n) is not float:
                raise ValueError(f"{n!r} cannot be added")
    return values


@dataclass(slots=True, frozen=True)
class SeriesQuery:
    """Rows of one resolution from ``since`` on: of everything, of a queue, of a kind, or of a kind in a queue. Those of
    everything come along: they say which moments were looked at. ``ends``: of every kind in each queue instead, by the
    minute; nothing is asked but how many completed and failed for good."""

    resolution: Resolution
    since: datetime
    queue: str | None = None
    kind: str | None = None
    ends: bool = False

    def fits(self, cell: Cell) -> bool:
        if cell.resolution is not self.resolution or cell.at < self.since:
            return False
        if cell.queue == ALL:
            return True
        if self.kind is None:
            return cell.queue == self.queue and cell.kind == ALL
        return cell.kind == self.kind and self.queue in (None, cell.queue)


@dataclass(slots=True, frozen=True)
class SeriesRow:
    """What was counted in one step. Several rows may be about the same: they are added."""

    at: datetime
    queue: str
    kind: str
    document: Document

    @property
    def tally(self) -> Tally:
        return from_document(self.document)

    @property
    def completed(self) -> int:
        return int(self.document.get("completed", 0))

    @property
    def failed(self) -> int:
        return int(self.document.get("failed", 0))


# -- how values are spread, and how long a store's calls take by that --------------------------------------------------


class Spread:
    """Counts values by the buckets between ``bounds``; one more, the last, has no end."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS, counts: Sequence[int] | None = None, total: float = 0.0):
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1) if counts is None else list(counts)
        self.total = total

    def note(self, value: float) -> None:
        """Counts a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def plus(self, more: Spread) -> Spread:
        """Returns both together."""
        counts = [mine + theirs for mine, theirs in zip(self.counts, more.counts, strict=True)]
        return Spread(self.bounds, counts, self.total + more.total)


class Meter:
    """How long the calls of each verb took, and how many ended with which error."""

    def __init__(self) -> None:
        self.calls: dict[str, Spread] = {}
        self.errors: dict[str, int] = {}

    def took(self, verb: str, seconds: float) -> None:
        found = self.calls.get(verb)
        if found is None:
            found = self.calls[verb] = Spread()
        # As ``Spread.note`` does it, without a call more: every statement comes by here.
        found.counts[bisect_left(found.bounds, seconds)] += 1
        found.total += seconds

    def failed(self, code: str) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1
