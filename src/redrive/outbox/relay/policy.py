"""What the relay decides, without doing anything: which events of an entity are sent, how long
a sink that is down is left alone, and what its refusals mean for a worker, who judges whether and when to try again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from redrive.errors import RedriveError
from redrive.kernel.backoff import Backoff
from redrive.kernel.classify import Classification, FailureType, classify
from redrive.outbox.event import Event
from redrive.outbox.verdict import DETERMINISTIC, Done, Failed, Retry, Superseded, Verdict

_TYPES: Mapping[str, FailureType] = {
    "connect": FailureType.NETWORK,
    "tls": FailureType.NETWORK,
    "http_429": FailureType.NETWORK,
    "timeout": FailureType.TIMEOUT,
    "http_408": FailureType.TIMEOUT,
    "http_5xx": FailureType.MODEL_ERROR,
    "unavailable": FailureType.MODEL_ERROR,
    "http_4xx": FailureType.PARAM_ERROR,
    DETERMINISTIC: FailureType.PARAM_ERROR,
}


@dataclass(slots=True)
class Entity:
    """The events of one entity that have no verdict yet, the newest first."""

    events: list[Event]

    @property
    def newest(self) -> Event:
        return self.events[0]

    def told(self, verdict: Verdict) -> Mapping[UUID, Verdict]:
        """Takes the sink's verdict on the newest; returns what follows, by event. Older ones are superseded by a newest
        that arrived, and wait with one that has to; one that never will arrive leaves its place to the next."""
        if len(self.events) == 1:
            (newest,), self.events = self.events, []
            return {newest.id: verdict}
        newest, *older = self.events
        if isinstance(verdict, Failed):
            self.events = older
            return {newest.id: verdict}
        self.events = []
        follows: Verdict = Superseded() if isinstance(verdict, Done | Superseded) else verdict
        return {newest.id: verdict, **{event.id: follows for event in older}}


def by_entity(events: Iterable[Event]) -> list[Entity]:
    """Returns the events by entity. Of two with one order the one that was published last comes first: ids are in the
    order of their time."""
    found: dict[str, list[Event]] = {}
    for event in events:
        found.setdefault(event.key, []).append(event)
    for one in found.values():
        if len(one) > 1:
            one.sort(key=lambda event: (event.order, event.id), reverse=True)
    return [Entity(one) for one in found.values()]


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Returns what several indexes together say of one event: it is done when all of them have it."""
    if len(verdicts) == 1:
        return verdicts[0]
    for kind in (Failed, Retry, Done):
        for verdict in verdicts:
            if isinstance(verdict, kind):
                return verdict
    return verdicts[0]


@dataclass(slots=True)
class SinkBackoff:
    """Keeps a worker from asking a sink again and again that is down, however many events wait: after a request that
    failed as a whole the next one waits as an event would, longer each time."""

    backoff: Backoff
    failures: int = 0
    until: float = 0.0

    def failed(self, now: float, jitter: float, wish: float | None = None) -> None:
        """Counts a request that failed as a whole, at a time of a steady clock; ``wish``: seconds that the sink asks
        to be left alone. Those that were under way with it say nothing new."""
        if now >= self.until:
            self.failures += 1
            self.until = now + self.backoff.at_least(wish, self.failures, jitter)

    def succeeded(self) -> None:
        """Counts a request that was answered."""
        self.failures, self.until = 0, 0.0

    def wait(self, now: float) -> float:
        """Returns the seconds until the next request may be sent."""
        return max(0.0, self.until - now)


class EventRefused(Exception):
    """The sink did not take an event."""

    def __init__(self, verdict: Retry | Failed) -> None:
        super().__init__(verdict.message)
        retryable = isinstance(verdict, Retry)
        kind = _TYPES.get(verdict.reason, FailureType.UNKNOWN)
        self.classification = Classification(verdict.reason, kind, retryable)
        # The core reads here how long a server asks to be left alone.
        after = verdict.after if isinstance(verdict, Retry) else None
        self.headers: Mapping[str, str] = {} if after is None else {"Retry-After": str(after)}


def is_of_the_sink(error: Exception) -> bool:
    """Returns whether an error is the sink's own trouble: it cannot be reached, is too slow, or turns everybody away.
    Any other may be due to one event."""
    found = classify(error)
    outage = found.failure_type in (FailureType.NETWORK, FailureType.TIMEOUT) or found.reason.startswith("http_")
    return outage or isinstance(error, OSError | RedriveError)


class SinkFailed(Exception):
    """A write failed as a whole. That says nothing about its events, so it is tried again, whatever it was: a wrong
    password does not fail everything that waits."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        found = classify(error)
        self.classification = Classification(found.reason, found.failure_type, True)
