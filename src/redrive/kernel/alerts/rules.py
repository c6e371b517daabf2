"""The rules there are: one table, from which alerts, doctor's words, the Prometheus rules and the runbook's test are
made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from redrive.kernel.alerts import promql
from redrive.kernel.alerts.facts import SURGE_FACTOR, SURGE_WINDOW, Facts, QueueFacts
from redrive.kernel.alerts.slo import FAST, SLOW
from redrive.kernel.alerts.thresholds import CIRCUIT_OPEN_S, PINNED_S, SPANS, UNSEALED_S, Limits, Thresholds
from redrive.kernel.diagnosis import Level
from redrive.kernel.figures import MOST_COUNTED
from redrive.kernel.wording import counted, span

OWN_ANCHOR = "rules-of-your-own"  # in the runbook, of all rules of an application


class Unit(StrEnum):
    """What a rule's number is, and how it is said."""

    NUMBER = "number"
    TASKS = "tasks"
    SECONDS = "seconds"

    def in_words(self, value: float) -> str:
        match self:
            case Unit.SECONDS:
                return span(timedelta(seconds=value))
            case Unit.TASKS:
                return counted(round(value))
        return f"{value:,.0f}" if value == int(value) else f"{value:,g}"

    @property
    def template(self) -> str:
        """How Prometheus says it."""
        return {
            Unit.SECONDS: "{{ $value | humanizeDuration }}",
            Unit.TASKS: '{{ $value | printf "%.0f" }} tasks',
            Unit.NUMBER: '{{ $value | printf "%.0f" }}',
        }[self]


def key_of(rule: str, queue: str) -> str:
    """Returns what a rule is known by, of a queue or (``queue`` empty) wherever it is broken."""
    return f"{rule}:{queue}" if queue else rule


@dataclass(slots=True, frozen=True)
class Condition:
    """A rule that is broken now, of a queue or (``queue`` empty) of the store. ``hold``: for how many seconds it has to
    be, before the alert fires. ``runbook``: an address, if not the one that follows from the rule's name."""

    rule: str
    queue: str
    value: float
    text: str
    level: Level
    hold: float = 0.0
    fix: str = ""
    runbook: str = ""

    @property
    def key(self) -> str:
        return key_of(self.rule, self.queue)


@dataclass(slots=True, frozen=True)
class Rule:
    """``words`` may have ``{queue}``, ``{value}`` and thresholds by name; so may ``fix``. ``of_queue`` and ``of_store``
    return the number that breaks it, or None. ``hold``: how long it has to be broken, in seconds; a name of a
    threshold, or a number. ``expression`` gets thresholds and a selector of queues, for Prometheus. ``detail`` is added
    to its words where the product says them; ``instead`` says it in words of its own, where the facts have some.
    ``most`` and ``most_of_store``: how far its number is counted; from there on it says "at least"."""

    name: str
    level: Level
    words: str
    fix: str
    unit: Unit
    hold: str | float
    expression: Callable[[Thresholds, str], str]
    of_queue: Callable[[QueueFacts, Thresholds], float | None] | None = None
    of_store: Callable[[Facts], float | None] | None = None
    detail: Callable[[QueueFacts, Thresholds], str] = lambda own, limit: ""
    instead: Callable[[Facts], str | None] = lambda _: None
    most: Callable[[QueueFacts, Thresholds], float] = lambda own, limit: math.inf
    most_of_store: float = math.inf

    @property
    def anchor(self) -> str:
        """Its place in the runbook, docs/operations.md."""
        return f"alert-{self.name.replace('_', '-')}"

    def hold_seconds(self, limits: Thresholds) -> float:
        return float(getattr(limits, self.hold)) if isinstance(self.hold, str) else self.hold

    def sentence(self, queue: str, value: str, limits: Thresholds) -> str:
        return _filled(self.words, queue, value, limits)

    def to_do(self, queue: str, limits: Thresholds) -> str:
        return _filled(self.fix, queue, "", limits)

    def conditions(self, facts: Facts, limits: Limits) -> Iterator[Condition]:
        """Yields where it is broken."""
        if self.of_store is not None and limits.holds(self.name, ""):
            value = self.of_store(facts)
            if value is not None:
                text = self.instead(facts) or self.sentence("", self._number(value, self.most_of_store), limits.every)
                yield self._condition("", value, text, limits.every)
        if self.of_queue is None:
            return
        for queue, own in facts.queues.items():
            limit = limits.of(queue)
            if own.paused or self.name in limit.off:
                continue
            value = self.of_queue(own, limit)
            if value is not None:
                number = self._number(value, self.most(own, limit))
                text = self.sentence(queue, number, limit) + self.detail(own, limit)
                yield self._condition(queue, value, text, limit)

    def _number(self, value: float, most: float) -> str:
        return f"at least {self.unit.in_words(value)}" if value >= most else self.unit.in_words(value)

    def _condition(self, queue: str, value: float, text: str, limit: Thresholds) -> Condition:
        return Condition(self.name, queue, value, text, self.level, self.hold_seconds(limit), self.to_do(queue, limit))


def _filled(words: str, queue: str, value: str, limits: Thresholds) -> str:
    """Returns a text with its blanks filled in: what it is about, and thresholds as people say them."""
    return words.format_map(_Blanks(queue, value, limits))


class _Blanks(dict[str, object]):
    """What a text may name; thresholds are put into words when it does."""

    def __init__(self, queue: str, value: str, limits: Thresholds) -> None:
        super().__init__(queue=queue, value=value)
        self._limits = limits

    def __missing__(self, name: str) -> object:
        found = getattr(self._limits, name)
        return span(timedelta(seconds=found)) if name.endswith(SPANS) else found


def _above(value: float, limit: float) -> float | None:
    return value if value > limit else None


def _failed(own: QueueFacts, limit: Thresholds) -> float | None:
    return _above(own.failed, limit.failed)


def _depth(own: QueueFacts, limit: Thresholds) -> float | None:
    falling = own.before is None or own.queued < own.before
    return None if falling else _above(own.queued, limit.depth)


def _pending(own: QueueFacts, limit: Thresholds) -> float | None:
    return own.overdue if own.overdue >= limit.enough_waiting(own.queued) else None


def _surge(own: QueueFacts, limit: Thresholds) -> float | None:
    # How many of them are by causes that somebody has muted is not counted: not more than the others are failed now.
    fresh = min(own.surged, own.failed) if own.known else own.surged
    return _above(fresh, limit.surge) if fresh > SURGE_FACTOR * own.usual else None


def _oldest(own: QueueFacts, limit: Thresholds) -> float | None:
    return _above(own.oldest, limit.oldest_age) if own.queued else None


def _unserved(own: QueueFacts, limit: Thresholds) -> float | None:
    return _above(own.queued, 0) if not own.workers else None


def _most_pending(own: QueueFacts, limit: Thresholds) -> float:
    return limit.most_waiting(own.queued)


def _share(own: QueueFacts, limit: Thresholds) -> str:
    least = "at least " if own.queued > own.overdue >= _most_pending(own, limit) else ""
    return f", {least}{min(own.overdue / own.queued, 1):.0%} of all that are queued" if own.queued else ""


FAILED = Rule(
    "failed",
    Level.WARNING,
    "queue {queue} has failed tasks: {value}",
    "redrive causes; mend the cause, then redrive causes retry FINGERPRINT, or mute it",
    Unit.NUMBER,
    "failed_for",
    promql.failed,
    _failed,
)
DEPTH = Rule(
    "depth",
    Level.CRITICAL,
    "queue {queue} has {value} queued, and not fewer than {depth_for} ago",
    "redrive doctor --queue {queue}; more workers or slots, or find out what makes its tasks slow",
    Unit.TASKS,
    0.0,  # its window is a part of it
    promql.depth,
    _depth,
)
PENDING = Rule(
    "pending",
    Level.WARNING,
    "queue {queue} has {value} that waited for more than {pending_age}",
    "redrive list --state queued --queue {queue}, then redrive show ID: it says why",
    Unit.TASKS,
    0.0,
    promql.pending,
    _pending,
    detail=_share,
    most=_most_pending,
)
SURGE = Rule(
    "surge",
    Level.WARNING,
    f"queue {{queue}} had {{value}} terminal failures within {span(SURGE_WINDOW)},"
    f" {SURGE_FACTOR} times as many as usual or more",
    "redrive causes; was something deployed? redrive pause --queue {queue} keeps the rest from failing",
    Unit.NUMBER,
    0.0,
    promql.surge,
    _surge,
)
OLDEST_AGE = Rule(
    "oldest_age",
    Level.CRITICAL,
    "the first task of queue {queue} has waited for {value}; {oldest_age} is its limit",
    "redrive list --state queued --queue {queue}, then redrive show ID: it says why",
    Unit.SECONDS,
    0.0,
    promql.oldest_age,
    _oldest,
)
NO_WORKER = Rule(
    "no_worker",
    Level.CRITICAL,
    "no live worker serves queue {queue}, with {value} waiting",
    "redrive work --app module:app --queue {queue}",
    Unit.TASKS,
    "no_worker_for",
    promql.no_worker,
    _unserved,
)
STUCK = Rule(
    "stuck",
    Level.CRITICAL,
    "leases that ran out and that nobody recovers: {value}",
    "a live worker does so within seconds: start one, or read its log",
    Unit.NUMBER,
    60.0,
    promql.stuck,
    of_store=lambda facts: _above(facts.expired, 0),
    most_of_store=MOST_COUNTED,
)
SCHEDULE_MISSED = Rule(
    "schedule_missed",
    Level.WARNING,
    "schedules whose run is overdue for more than a minute: {value}",
    "redrive schedules; a live worker fires them: start one, or read its log",
    Unit.NUMBER,
    60.0,
    promql.schedule_missed,
    of_store=lambda facts: _above(facts.late, 0),
)
AUDIT_CHAIN = Rule(
    "audit_chain",
    Level.CRITICAL,
    "the chain of the audit log's seals is broken",
    "redrive audit verify",
    Unit.NUMBER,
    0.0,
    promql.audit_chain,
    of_store=lambda facts: None if facts.chain is None else 1.0,
    instead=lambda facts: facts.chain,
)
AUDIT_UNSEALED = Rule(
    "audit_unsealed",
    Level.WARNING,
    "rows of the audit log are not sealed since {value}; workers do that within minutes",
    "look for maintenance.failed in the workers' logs",
    Unit.SECONDS,
    120.0,  # where nobody was alive, whoever comes seals them first
    promql.audit_unsealed,
    of_store=lambda facts: _above(facts.unsealed, UNSEALED_S),
)
HORIZON = Rule(
    "horizon",
    Level.WARNING,
    "a transaction has been open for {value}: dead rows cannot be removed",
    "redrive doctor names it; end it where it runs",
    Unit.SECONDS,
    60.0,
    promql.horizon,
    of_store=lambda facts: _above(facts.horizon, PINNED_S),
)

CIRCUIT_OPEN = Rule(
    "circuit_open",
    Level.WARNING,
    "a circuit has been open for {value}: what its kinds call is down, and their tasks wait",
    "redrive circuits says which, and why; mend the other side: it is tried again by itself",
    Unit.SECONDS,
    0.0,
    promql.circuit_open,
    of_store=lambda facts: _above(facts.circuit, CIRCUIT_OPEN_S),
)

SLO_FAST = Rule(
    "slo_fast",
    Level.CRITICAL,
    "queue {queue} uses up its error budget {value} times as fast as it may, over 1 h and 5 min",
    "redrive slo; redrive doctor --queue {queue}",
    Unit.NUMBER,
    0.0,
    promql.slo_fast,
    lambda own, _: _above(own.fast, FAST),
)
SLO_SLOW = Rule(
    "slo_slow",
    Level.WARNING,
    "queue {queue} uses up its error budget {value} times as fast as it may, over 6 h, and goes on",
    "redrive slo; redrive doctor --queue {queue}",
    Unit.NUMBER,
    0.0,
    promql.slo_slow,
    lambda own, _: _above(own.slow, SLOW),
)

TABLE: tuple[Rule, ...] = (
    *(FAILED, DEPTH, PENDING, SURGE, OLDEST_AGE, NO_WORKER, SLO_FAST, SLO_SLOW),
    *(STUCK, SCHEDULE_MISSED, AUDIT_CHAIN, AUDIT_UNSEALED, HORIZON, CIRCUIT_OPEN),
)
NAMES = tuple(rule.name for rule in TABLE)


def conditions(facts: Facts, limits: Limits) -> list[Condition]:
    """Returns every rule that is broken now, by rule and queue."""
    return [one for rule in TABLE for one in rule.conditions(facts, limits)]
