"""Verdicts: what a sink says about each event that it was given."""

from __future__ import annotations

from dataclasses import dataclass

from redrive.kernel import classify

DETERMINISTIC = classify.DETERMINISTIC.reason  # of what fails the same way each time


@dataclass(slots=True, frozen=True)
class Done:
    """The sink has it."""


@dataclass(slots=True, frozen=True)
class Superseded:
    """The sink has the same version, or a newer one (a version conflict): nothing is left to do."""


@dataclass(slots=True, frozen=True)
class Retry:
    """It may work later. ``reason`` is kept as ``error_reason``: connect, timeout, http_429, http_5xx, unavailable;
    ``after``: seconds that the sink asked for (Retry-After); ``whole``: that is its answer to the whole request, and
    says nothing about this event (503, a wrong password)."""

    reason: str
    message: str
    after: float | None = None
    whole: bool = False


@dataclass(slots=True, frozen=True)
class Failed:
    """It never will: a mapping error, another 4xx. ``reason`` is kept as ``error_reason``: deterministic_exception,
    http_4xx."""

    reason: str
    message: str


Verdict = Done | Superseded | Retry | Failed
