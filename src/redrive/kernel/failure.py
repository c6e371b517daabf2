"""Failures: classify an exception, and tell failures with the same cause by a fingerprint."""

from __future__ import annotations

import hashlib
import re
import socket
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from types import TracebackType
from typing import Any

from redrive.errors import ErrorCode, RedriveError
from redrive.kernel import frames
from redrive.kernel.summary import NO_PAYLOAD, Payload, safe_message, summary_of, words_of

MAX_MESSAGE = 4_000
MAX_STACK = 16_000


class FailureType(StrEnum):
    """The coarse split used for statistics."""

    MODEL_ERROR = "model_error"
    PARAM_ERROR = "param_error"
    TIMEOUT = "timeout"
    NETWORK = "network"
    UNKNOWN = "unknown"


@dataclass(slots=True, frozen=True)
class Failure:
    """Why an attempt failed, ready to be stored."""

    code: str
    reason: str
    type: FailureType
    message: str
    fingerprint: str
    stack: str | None = None
    retryable: bool = True
    retry_after: float | None = None
    # What may be shown to everybody: see kernel/summary.py.
    summary: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class _Class:
    reason: str
    type: FailureType
    retryable: bool
    code: str = ErrorCode.EXECUTION_FAILED.value


_TIMEOUT = _Class("timeout", FailureType.TIMEOUT, True)
_CONNECT = _Class("connect", FailureType.NETWORK, True)
_UNKNOWN = _Class("unknown_exception", FailureType.UNKNOWN, True)
_DETERMINISTIC = _Class("deterministic_exception", FailureType.PARAM_ERROR, False)

# Client libraries are recognised by class name along the MRO, so that none of them has to be imported.
_TIMEOUT_NAMES = {"TimeoutException", "Timeout", "ReadTimeout", "ConnectTimeout", "PoolTimeout", "TimeoutError"}
_CONNECT_NAMES = {"TransportError", "NetworkError", "ConnectError", "ConnectionError", "ClientConnectionError",
                  "InterfaceError", "OperationalError", "ConnectionDoesNotExistError"}  # fmt: skip


def failure_of(
    error: BaseException, *, deterministic: tuple[type[BaseException], ...] = (), now: datetime | None = None,
    payload: Payload = NO_PAYLOAD, module: str | None = None,
) -> Failure:  # fmt: skip
    """Classify an exception raised by a handler. Unknown causes are retried: the fail-safe default.

    ``payload`` is what the task was given and what must not be shown; ``module`` is the handler's."""
    found = _classify(error, deterministic)
    message = _message(error)
    return Failure(
        code=found.code,
        reason=found.reason,
        type=found.type,
        message=message,
        stack=_stack(error),
        fingerprint=fingerprint(found.code, type(error).__qualname__, place_of(error.__traceback__), message),
        retryable=found.retryable,
        retry_after=_retry_after(error, now) if found.retryable else None,
        summary=_summary(error, message, payload, module),
    )


def _summary(error: BaseException, message: str, payload: Payload, module: str | None) -> dict[str, Any]:
    written = words_of(frames.literals(frames.codes(error)))
    status = _status(error)
    return summary_of(
        safe_message(message, written, payload), exception=frames.type_name(error),
        chain=[frames.type_name(one) for one in frames.chain(error)],
        frames=frames.places(error, frames.package_of(module)), payload=payload,
        marks={} if status is None else {"status": status},
    )  # fmt: skip


def failure(
    code: str, reason: str, message: str, *, type: FailureType = FailureType.UNKNOWN, where: str = "",
    stack: str | None = None, retryable: bool | None = None, public: bool = False, payload: Payload = NO_PAYLOAD,
) -> Failure:  # fmt: skip
    """A failure that is not an exception: a verdict, an expired lease, an unsupported kind.

    ``public``: the message is ours and quotes nothing, everybody may read it as it is."""
    return Failure(
        code=code,
        reason=reason,
        type=type,
        message=clean(message[:MAX_MESSAGE])[:MAX_MESSAGE],
        stack=stack,
        fingerprint=fingerprint(code, reason, where, message),
        retryable=code == ErrorCode.EXECUTION_FAILED if retryable is None else retryable,
        summary=summary_of(message if public else safe_message(message, (), payload)),
    )


def fingerprint(code: str, exception: str, place: str, message: str) -> str:
    """Same code, exception, place and message shape → same group, whatever ids and numbers the message holds."""
    text = "\x1f".join((code, exception, place, normalise(message)))
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


_NORMALISE = [
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.I), "<id>"),
    (re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b"), "<email>"),
    (re.compile(r"\bhttps?://\S+", re.I), "<url>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.I), "<hex>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b", re.I), "<hex>"),
    (re.compile(r"'[^']{0,200}'|\"[^\"]{0,200}\""), "<text>"),
    (re.compile(r"(?<![A-Za-z])\d+(?:\.\d+)*"), "<n>"),
]


def normalise(message: str) -> str:
    """The message with its variable parts replaced; the first lines decide, long tails do not."""
    text = message[:500]
    for pattern, replacement in _NORMALISE:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())


def place_of(trace: TracebackType | None) -> str:
    """Where it happened: the innermost frame outside installed packages (module and function, no line number,
    so that an edit above it does not make a new group)."""
    place = ""
    for frame, _ in traceback.walk_tb(trace):
        filename = frame.f_code.co_filename
        name = f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_qualname}"
        if not place or not (
            "site-packages" in filename or "/redrive/worker/" in filename or "/lib/python" in filename
        ):
            place = name
    return place


def clean(text: str) -> str:
    """Text that every store can hold: no NUL, no lone surrogates."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


def _classify(error: BaseException, deterministic: tuple[type[BaseException], ...]) -> _Class:
    if deterministic and isinstance(error, deterministic):
        return _DETERMINISTIC
    status = _status(error)
    if status is not None:
        return _by_status(status)
    if isinstance(error, RedriveError) and error.code in _NON_RETRYABLE:
        return _Class(error.code.lower(), FailureType.PARAM_ERROR, False, error.code)
    names = {cls.__name__ for cls in type(error).__mro__}
    if isinstance(error, TimeoutError) or names & _TIMEOUT_NAMES:
        return _TIMEOUT
    if isinstance(error, ConnectionError | socket.gaierror | EOFError) or names & _CONNECT_NAMES:
        return _CONNECT
    return _UNKNOWN


_NON_RETRYABLE = frozenset(code.value for code in ErrorCode if code is not ErrorCode.EXECUTION_FAILED)


def _by_status(status: int) -> _Class:
    if status == 429:
        return _Class("http_429", FailureType.NETWORK, True)
    if status == 408:
        return _Class("http_408", FailureType.TIMEOUT, True)
    if status >= 500:
        return _Class("http_5xx", FailureType.MODEL_ERROR, True)
    if status >= 400:
        return _Class("http_4xx", FailureType.PARAM_ERROR, False)
    return _UNKNOWN


def _status(error: BaseException) -> int | None:
    """The HTTP status carried by the exceptions of httpx, requests, aiohttp, boto and others."""
    for holder in (_look(error, "response"), error):
        for name in ("status_code", "status"):
            value = _look(holder, name)
            if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
                return value
    return None


def _retry_after(error: BaseException, now: datetime | None) -> float | None:
    try:
        headers = _look(_look(error, "response"), "headers") or _look(error, "headers")
        if not isinstance(headers, Mapping):
            return None
        value = headers.get("Retry-After") or headers.get("retry-after")
        return None if value is None else parse_retry_after(str(value), now)
    except Exception:  # somebody else's mapping
        return None


def _look(holder: Any, name: str) -> Any:
    """An attribute, or None. It may be a property of somebody else's class, and raise anything."""
    try:
        return getattr(holder, name, None)
    except Exception:
        return None


def parse_retry_after(value: str, now: datetime | None) -> float | None:
    """Seconds, or an HTTP date; nonsense is ignored rather than trusted."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value).astimezone(UTC)
        except (ValueError, OverflowError):
            return None
        seconds = (when - (now or datetime.now(UTC))).total_seconds()
    return min(max(seconds, 0.0), 86_400.0) if seconds == seconds else None


def _message(error: BaseException) -> str:
    try:
        text = str(error)[:MAX_MESSAGE]  # cut at once: whatever follows would go through all of it
    except Exception:
        text = "(the exception could not be shown as text)"
    kind = type(error)
    # The text of a built-in exception often says little without its name: KeyError('missing') is just 'missing'.
    named = kind.__module__ == "builtins" and kind not in (Exception, RuntimeError)
    return clean(f"{kind.__name__}: {text}" if named and text else text or kind.__name__)[:MAX_MESSAGE]


def _stack(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:
        text = f"{type(error).__qualname__} (its traceback could not be formatted)"
    text = clean(text)
    # The end of a traceback says what happened, its start says where it began: keep both.
    if len(text) > MAX_STACK:
        text = text[: MAX_STACK // 2] + "\n... shortened ...\n" + text[-MAX_STACK // 2 :]
    return text
