"""How a simulated provider behaves: all of it may be changed while it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from redrive.errors import InvalidInput
from redrive.kernel.classify import FailureType
from redrive.settings.declare import Values, option
from redrive.settings.values import Problem, Unfit

# Why jobs fail, by what that counts as: text, the provider's code, and an HTTP status where it has one.
FAILURES: Mapping[str, tuple[str, str, int | None]] = {
    FailureType.MODEL_ERROR: ("the model is not available", "MODEL_UNAVAILABLE", 503),
    FailureType.PARAM_ERROR: ("the prompt is not valid", "INVALID_PROMPT", 400),
    FailureType.TIMEOUT: ("the job took too long", "JOB_TIMEOUT", 504),
    FailureType.NETWORK: ("fetch failed", "FETCH_FAILED", None),
    FailureType.UNKNOWN: ("something went wrong", "INTERNAL", None),
}


def _mix(given: dict[str, float]) -> dict[str, float]:
    for name, share in given.items():
        if name not in FAILURES:
            raise Unfit(Problem((name,), f"it has to be one of {', '.join(FAILURES)}", name))
        if not 0 <= share <= 1:
            raise Unfit(Problem((name,), "it is a share, from 0 to 1", share))
    if sum(given.values()) > 1 + 1e-9:
        raise ValueError("the shares are more than 1 together")
    return given


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError("it has to be a number")
    return number


class Behaviour(Values):
    """What can be chosen. Shares are from 0 to 1, times in seconds."""

    latency: float = option(0.0, ge=0, le=600, check=_finite, help="How long each request takes, half of it by chance.")
    duration: float = option(2.0, ge=0, le=864_000, check=_finite, help="How long a job runs.")
    spread: float = option(0.5, ge=0, le=1, check=_finite, help="How much of that is by chance: 0 is none.")
    waiting: float = option(0.0, ge=0, le=864_000, check=_finite, help="How long a job is queued before it runs.")
    steps: int = option(10, ge=1, le=1_000, help="Steps in which progress is told.")
    failures: dict[str, float] = option({}, check=_mix, help="Which share of jobs fails, by type.")
    rate: float = option(0.0, ge=0, check=_finite, help="Requests a second; beyond that 429. 0: any number.")
    error_share: float = option(0.0, ge=0, le=1, check=_finite, help="Share of requests that get a 500.")
    lost_share: float = option(0.0, ge=0, le=1, check=_finite, help="Share of requests whose answer is lost.")
    down_as: Literal["503", "drop", "hang"] = option("503", help="What an outage looks like.")
    page_size: int = option(100, ge=1, le=10_000, help="Jobs on a page.")
    max_ids: int = option(1_000, ge=1, le=100_000, help="Jobs that one request may ask for.")


def changed(behaviour: Behaviour, given: Mapping[str, Any]) -> Behaviour:
    """Returns a behaviour with other values; what cannot be is refused, and nothing is changed."""
    try:
        return Behaviour.from_map({**behaviour.given, **given})
    except Unfit as error:
        raise InvalidInput(f"a provider cannot be like that: {error}") from None


def shown(behaviour: Behaviour) -> dict[str, Any]:
    """Returns all of it, by name."""
    return {name: getattr(behaviour, name) for name in Behaviour._fields}
