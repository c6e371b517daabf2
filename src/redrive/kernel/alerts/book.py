"""The book of alerts: which are pending, which fire, which have ended. It is a document in the store, so that whoever
evaluates next goes on with it, and times in it are the store's."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from redrive.kernel.alerts.facts import Answer
from redrive.kernel.alerts.rules import Condition, key_of
from redrive.kernel.alerts.slo import ServiceLevel
from redrive.kernel.diagnosis import Level
from redrive.kernel.documents import from_document
from redrive.kernel.wording import span

ENDED_AFTER = timedelta(seconds=30)  # without the condition; a moment is none
UNOBSERVED = timedelta(minutes=2)  # a pause of this length between two rounds is not counted as time
AHEAD = timedelta(minutes=1)  # a book from further in the future was written by a clock that has been set
NOBODYS = timedelta(minutes=5)  # so long after its last answer a rule that is not known here is somebody's
MOST_ENDED = 50
MOST_NAMED = 20  # queues of one rule
MOST_ALERTS = 500
SHOWN = 3
_WORST_FIRST = {Level.CRITICAL: 0, Level.WARNING: 1}
_MORE_FIX = "redrive stats lists all queues; mend those that are named, and the next ones are"


@dataclass(slots=True, frozen=True)
class Alert:
    """``since``: when its condition began. ``fired``: when that had held for long enough. ``gone``: since when it does
    not hold any more; ``ended``: when that was believed. ``told``: somebody was told that it fires. ``runbook``: where
    its rule has one of its own; kept, because not everybody who shows it knows the feature that brought the rule.
    ``detail``: what was known when it fired, a line each; nothing that not everybody may see."""

    rule: str
    queue: str
    level: Level
    text: str
    value: float
    since: datetime
    fix: str = ""
    fired: datetime | None = None
    gone: datetime | None = None
    ended: datetime | None = None
    told: bool = False
    runbook: str = ""
    detail: str = ""

    @property
    def sentence(self) -> str:
        """Returns what is wrong; of one that has ended what it was, and for how long."""
        if self.ended is None:
            return self.text
        return f"ended after {span((self.gone or self.ended) - self.since)}; it was: {self.text}"

    @property
    def key(self) -> str:
        return key_of(self.rule, self.queue)

    @property
    def state(self) -> str:
        """Returns ``pending``, ``firing`` or ``resolved``."""
        return "resolved" if self.ended is not None else "pending" if self.fired is None else "firing"


@dataclass(slots=True, frozen=True)
class Silence:
    """Nobody is told of a rule until a time: of a queue, or (``queue`` empty) wherever it is broken."""

    rule: str
    queue: str
    until: datetime
    by: str
    reason: str | None
    at: datetime

    @property
    def key(self) -> str:
        return key_of(self.rule, self.queue)

    def covers(self, alert: Alert, now: datetime) -> bool:
        return self.until > now and self.rule == alert.rule and self.queue in ("", alert.queue)


def silence_over(alert: Alert, silences: Iterable[Silence], now: datetime) -> Silence | None:
    """Returns the silence by which nobody is told of an alert: of several the one that holds longest."""
    return max((one for one in silences if one.covers(alert, now)), key=lambda one: one.until, default=None)


@dataclass(slots=True, frozen=True)
class Message:
    """What is sent, and to whom still: an id by which a receiver knows it again, the alerts as they were. ``next_at``:
    nobody sends it before, because somebody is at it, or because it failed."""

    id: str
    at: datetime
    next_at: datetime
    to: tuple[str, ...]
    alerts: tuple[Alert, ...]
    tries: int = 0


@dataclass(slots=True, frozen=True)
class Book:
    """``at``: the last round, and ``by`` whom. ``ended``: alerts that have ended, the latest first. ``depths``,
    ``counted`` (failed and overdue tasks by queue), ``chain``, ``answers`` and ``services`` (by queue, against their
    objectives): what one round found that others go by. ``lost``: why the latest message was given up. ``dropped``: how
    many broken rules found no room in the last round."""

    at: datetime | None = None
    by: str = ""
    alerts: Mapping[str, Alert] = field(default_factory=dict)
    ended: Sequence[Alert] = ()
    messages: Sequence[Message] = ()
    depths: Mapping[str, Sequence[tuple[datetime, int]]] = field(default_factory=dict)
    counted: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    chain: str | None = None
    chain_at: datetime | None = None
    answers: Mapping[str, Answer] = field(default_factory=dict)
    services: Mapping[str, ServiceLevel] = field(default_factory=dict)
    lost: str | None = None
    dropped: int = 0

    @property
    def firing(self) -> list[Alert]:
        """Those that fire, the worst and the longest first."""
        order = {Level.CRITICAL: 0, Level.WARNING: 1}
        found = [alert for alert in self.alerts.values() if alert.fired is not None]
        return sorted(found, key=lambda alert: (order.get(alert.level, 2), alert.fired or alert.since, alert.key))


def set_back(book: Book, now: datetime) -> Book:
    """Returns a book that was written by a clock that was ahead, with no time later than now: what fires goes on, and
    what goes by time begins again."""
    if book.at is None or book.at - now <= AHEAD:
        return book

    alerts = {
        key: replace(
            alert,
            since=min(alert.since, now),
            fired=alert.fired and min(alert.fired, now),
            gone=alert.gone and min(alert.gone, now),
        )
        for key, alert in book.alerts.items()
    }
    messages = [replace(one, at=min(one.at, now), next_at=min(one.next_at, now)) for one in book.messages]
    return replace(book, at=None, alerts=alerts, messages=messages, depths={}, answers={}, chain_at=None)


def step(book: Book, broken: Iterable[Condition], now: datetime) -> Book:
    """Returns the book after a round: what is broken is pending until it has been for long enough, then it fires; what
    is not broken any more ends, one that has not fired without a word."""
    missed = book.at is not None and now - book.at > UNOBSERVED
    found: dict[str, Alert] = {}
    conditions, dropped = fold(broken, book.alerts.keys())
    for condition in conditions:
        found[condition.key] = _alert_for(book.alerts.get(condition.key), condition, now, missed)
    ended = []
    for key, alert in book.alerts.items():
        if key in found or alert.fired is None:
            continue
        gone = alert.gone or now
        if now - gone >= ENDED_AFTER:
            ended.append(replace(alert, gone=gone, ended=now))
        else:
            found[key] = replace(alert, gone=gone)
    return replace(book, at=now, alerts=found, ended=[*ended, *book.ended][:MOST_ENDED], dropped=dropped)


def _alert_for(known: Alert | None, condition: Condition, now: datetime, missed: bool) -> Alert:
    restarted = known is None or (known.fired is None and missed)
    since = now if restarted or known is None else known.since
    fired = None if known is None else known.fired
    if fired is None and (now - since).total_seconds() >= condition.hold:
        fired = now
    return Alert(
        condition.rule,
        condition.queue,
        condition.level,
        condition.text,
        condition.value,
        since,
        condition.fix,
        fired,
        told=known is not None and known.told,
        runbook=condition.runbook,
        detail="" if known is None else known.detail,
    )


# -- one rule that is broken in many queues does not push the alerts of all others out of the book -------------------


def fold(broken: Iterable[Condition], known: Collection[str]) -> tuple[list[Condition], int]:
    """Returns what is broken, and how many had to be left out: of each rule so many queues by name, and one condition
    for all the others. Those that are ``known`` keep their names: none of them is taken for ended. Where there are
    still too many, queues are left out before what is about the store or a feature."""
    by_rule: dict[str, list[Condition]] = {}
    for one in broken:
        by_rule.setdefault(one.rule, []).append(one)
    kept = [one for of_rule in by_rule.values() for one in _named(of_rule, known)]
    kept.sort(key=lambda one: (one.key not in known, bool(one.queue), _WORST_FIRST.get(one.level, 2)))
    return kept[:MOST_ALERTS], max(len(kept) - MOST_ALERTS, 0)


def _named(of_rule: list[Condition], known: Collection[str]) -> list[Condition]:
    """Returns the conditions of one rule: those that are known, then the worst, then one about the rest."""
    order = sorted(of_rule, key=lambda one: (one.key not in known, bool(one.queue), -one.value))
    already = sum(one.key in known for one in order)
    most = max(MOST_NAMED, already)
    # One more is named rather than hidden behind "and one more".
    if len(order) <= most + 1:
        return order
    return [*order[:most], _rest(order[most:], most)]


def _rest(others: list[Condition], named: int) -> Condition:
    """Returns one condition about many queues, which fires as soon as the first of them would."""
    shown = ", ".join(one.queue for one in others[:SHOWN])
    text = f"{named} queues are named, and {len(others):,} more have the same: {shown}, …"
    soonest = min(one.hold for one in others)
    return replace(others[0], queue="", value=float(len(others)), text=text, hold=soonest, fix=_MORE_FIX)


def of_others(book: Book, known: Collection[str], now: datetime) -> tuple[dict[str, Answer], list[Condition]]:
    """Returns what rules have answered that are not known here, and those of them that are broken. Workers of another
    application, which share the store, judge them: here they are neither broken anew nor ended. What was not asked for
    a while nobody has any more."""
    answers = {
        name: one
        for name, one in book.answers.items()
        if name not in known and one.at is not None and now - one.at < NOBODYS
    }
    broken = [
        Condition(one.rule, one.queue, one.value, one.text, one.level, math.inf, one.fix, one.runbook)
        for one in book.alerts.values()
        if one.rule in answers and one.gone is None
    ]
    return answers, broken


def to_tell(before: Book, after: Book, silences: Sequence[Silence], now: datetime) -> list[Alert]:
    """Returns alerts of which somebody has to be told now: each once when it fires, and once when it has ended, if it
    was told of. One that is silenced is told of when the silence is over and it fires still."""
    new = [
        alert
        for alert in after.firing
        if not alert.told and alert.gone is None and silence_over(alert, silences, now) is None
    ]
    known = {(alert.key, alert.fired) for alert in before.ended}
    over = [alert for alert in after.ended if alert.told and (alert.key, alert.fired) not in known]
    return [*new, *over]


def mark_notified(book: Book, alerts: Iterable[Alert]) -> Book:
    """Returns the book in which these are told of."""
    keys = {alert.key for alert in alerts if alert.ended is None}
    return replace(book, alerts={key: replace(a, told=True) if key in keys else a for key, a in book.alerts.items()})


def read_book(body: Mapping[str, Any] | None) -> Book:
    """Returns the book that such a document was made of; an empty one where somebody has rewritten it."""
    try:
        return Book() if body is None else from_document(Book, _renewed(body))
    except (KeyError, TypeError, ValueError, AttributeError):
        return Book()


def _renewed(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the document of a book that was written before the first release as it is written now."""
    if not isinstance(alerts := body.get("alerts"), list):
        return body
    answers = {name: dict(zip(("value", "fault", "at"), one, strict=True)) for name, one in body["answers"].items()}
    services = {
        queue: one | {"objective": dict(zip(("wait_seconds", "target", "days"), one["objective"], strict=True))}
        for queue, one in body["services"].items()
    }
    keyed = {key_of(one["rule"], one["queue"]): one for one in alerts}
    return {**body, "alerts": keyed, "answers": answers, "services": services}


def read_silence(body: Mapping[str, Any]) -> Silence | None:
    """Returns a silence; None of a document that is none."""
    try:
        return from_document(Silence, body)
    except (KeyError, TypeError, ValueError):
        return None
