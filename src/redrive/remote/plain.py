"""Reads what a provider in Python returned. Types are promised there, and not checked by anybody before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from redrive.kernel.classify import FailureType
from redrive.remote.provider import JobFailure

NOT_SAID = "the provider does not say why"
MAX_CODE = 100


def plain_failure(failure: JobFailure) -> JobFailure:
    """Returns why a job failed with what can be used of it. That it failed is said clearly: the rest is not worth
    asking again."""
    return replace(
        failure,
        message=NOT_SAID if failure.message is None else as_text(failure.message).strip() or NOT_SAID,
        status_code=failure.status_code if type(failure.status_code) is int else None,
        code=plain_code(failure.code),
        failure_type=_failure_type(failure.failure_type),
        reason=failure.reason if isinstance(failure.reason, str) else None,
        retryable=failure.retryable if isinstance(failure.retryable, bool) else None,
    )


def plain_code(given: Any) -> str | None:
    """Returns a provider's own code as text; numbers are codes, too."""
    known = isinstance(given, str | int) and not isinstance(given, bool)
    return as_text(given)[:MAX_CODE] if known else None


def as_text(given: Any, how: Callable[[Any], str] = str) -> str:
    """Returns anything as text: whose own code for it raises is named by its type."""
    try:
        return how(given)
    except Exception:
        return f"<{type(given).__name__}>"


def _failure_type(given: Any) -> FailureType | None:
    try:
        return None if given is None else FailureType(given)
    except ValueError:
        return None
