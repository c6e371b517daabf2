"""Turns what a sink said about events into exceptions that the worker judges: whether and when to try again."""

from __future__ import annotations

from collections.abc import Mapping

from redrive.errors import RedriveError
from redrive.kernel.classify import Classification, FailureType, classify
from redrive.outbox.verdict import DETERMINISTIC, Failed, Retry

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
