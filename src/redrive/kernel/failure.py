"""Failures: why an attempt failed, as it is stored. Made from an exception, a verdict or a message."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from types import CodeType
from typing import Any

from redrive.errors import ErrorCode
from redrive.kernel import evidence, frames, marks
from redrive.kernel.classify import (
    NO_RULES,
    UNKNOWN,
    Classification,
    FailureRules,
    FailureType,
    by_words,
    classify,
)
from redrive.kernel.evidence import Marks
from redrive.kernel.message_template import template
from redrive.kernel.peer import peer_of, service_of
from redrive.kernel.raise_site import raised_by_application, words_of_answer, words_of_failure
from redrive.kernel.retry_after import retry_after
from redrive.kernel.summary import NO_PAYLOAD, Payload, safe_message, summary_of
from redrive.kernel.wording import MAX_MESSAGE, clean

__all__ = ["MAX_MESSAGE", "Failure", "FailureType", "Origin", "clean", "failure", "failure_of"]

MAX_STACK = 16_000
MAX_CAUSE = 200
MAX_PEER = 260
# Failures of somebody else, by their reasons: of others, what looks like a peer may be anything.
WITH_PEERS = frozenset({"connect", "timeout", "tls", "http_408", "http_429", "http_4xx", "http_5xx"})
# The types that applications raise with a message and no class of their own.
_BARE = (Exception, RuntimeError, ValueError)


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
    retry_after: float | None = None  # seconds that a server asked for
    # What may be shown to everybody: see kernel/summary.py.
    summary: dict[str, Any] = field(default_factory=dict)
    peer: str | None = None  # who did not answer, or answered with an error: host and port


@dataclass(slots=True, frozen=True)
class Origin:
    """Where a failure comes from: the handler, what its task was given, and the application's rules."""

    module: str | None = None
    code: CodeType | None = None  # of the handler's function: a verdict it returned was written there
    place: str = ""
    payload: Payload = NO_PAYLOAD
    rules: FailureRules = NO_RULES
    deterministic: tuple[type[BaseException], ...] = ()
    now: datetime | None = None


NOWHERE = Origin()


def failure_of(error: BaseException, origin: Origin = NOWHERE) -> Failure:
    """Makes a failure of an exception that a handler raised. Unknown causes are retryable: the fail-safe default."""
    found = classify(error, origin.deterministic, origin.rules)
    message = _message(error)
    return _made(
        found.code,
        found.reason,
        _type(found, message),
        message,
        origin,
        error=error,
        cause=_declared(error, origin),
        counts=_message_counts(error, origin),
        retryable=found.retryable,
    )


def declared_failure(
    code: str,
    reason: str,
    message: str,
    origin: Origin = NOWHERE,
    *,
    verdict: BaseException | None = None,
    type: FailureType | None = None,
    cause: str | None = None,
) -> Failure:
    """Makes a failure of a verdict that a handler declared: with its stack and place if it was raised, else with the
    handler's."""
    message = clean(message[:MAX_MESSAGE])[:MAX_MESSAGE]
    raised = verdict if verdict is not None and verdict.__traceback__ is not None else None
    if cause is None and raised is not None:
        cause = _declared(raised, origin)
    return _made(
        code,
        reason,
        type or by_words(message, origin.rules.table, code),
        message,
        origin,
        error=raised,
        declared=True,
        cause=cause,
    )


def failure(
    code: str,
    reason: str,
    message: str,
    *,
    type: FailureType | None = None,
    where: str = "",
    stack: str | None = None,
    retryable: bool | None = None,
    public: bool = False,
    payload: Payload = NO_PAYLOAD,
    what: str | None = None,
) -> Failure:
    """Makes a failure without an exception: an expired lease, an unsupported kind, what an executor reports.

    ``public``: the message is ours and quotes nothing, so everybody may read it as it is. ``what``: what the message
    says without the data in it, where that is known.
    """
    message = clean(message[:MAX_MESSAGE])[:MAX_MESSAGE]
    message_marks = marks.marks_in(message)
    facts = Facts(
        code, reason, marks=message_marks, message=words_of_answer(template(what or message), None), place=where
    )
    shown = message if public else safe_message(message, (), payload)
    return Failure(
        code=code,
        reason=reason,
        type=type or by_words(message, (), code),
        message=message,
        stack=stack,
        fingerprint=fingerprint(facts),
        retryable=code == ErrorCode.EXECUTION_FAILED if retryable is None else retryable,
        summary=summary_of(shown, marks=marks.public(message_marks, (), payload)),
    )


def _made(
    code: str,
    reason: str,
    type: FailureType,
    message: str,
    origin: Origin,
    *,
    error: BaseException | None = None,
    declared: bool = False,
    cause: str | None = None,
    counts: bool = True,
    retryable: bool | None = None,
) -> Failure:
    errors = [] if error is None else evidence.chain(error)
    alone = declared or reason == "timeout"
    places = _places(errors, alone, origin)
    without_verdict = errors[1:] if declared else errors
    found = (marks.marks_in(message) if counts else {}) | marks.marks(without_verdict)
    names = [frames.type_name(one) for one in errors]
    written = _source_texts(errors, origin)
    codes = written.literals | marks.declared_codes(without_verdict)
    peer = peer_of(errors) if not declared and reason in WITH_PEERS else None
    facts = Facts(
        code,
        reason,
        () if declared else tuple(names),
        tuple(places),
        marks.telling(found, codes),
        _source_words(message, errors, origin, alone=alone),
        words_of_answer(message, None) if counts else None,
        peer,
        cause and cause[:MAX_CAUSE],
    )
    words = written.words | {name.lower() for name in names}
    return Failure(
        code,
        reason,
        type,
        message,
        fingerprint(facts),
        None if error is None else _stack(error),
        code == ErrorCode.EXECUTION_FAILED if retryable is None else retryable,
        retry_after(error, origin.now) if error is not None and retryable else None,
        summary_of(
            safe_message(message, words, origin.payload),
            exception=names[0] if names else None,
            chain=names,
            frames=places,
            marks=marks.public(found, codes, origin.payload),
        ),
        None if peer is None else clean(peer)[:MAX_PEER],
    )


def _source_texts(errors: list[BaseException], origin: Origin) -> frames.Texts:
    """Returns the texts written in the functions that it came through, or in the handler."""
    return frames.texts(frames.codes(errors) if errors else [one for one in (origin.code,) if one is not None])


def _type(found: Classification, message: str) -> FailureType:
    return by_words(message) if found is UNKNOWN else found.type


def _places(errors: list[BaseException], alone: bool, origin: Origin) -> list[str]:
    """Returns the places that count for the fingerprint. ``alone``: only its own frames. Where a time-out caught the
    code is chance, and what led to a verdict is past."""
    found = frames.places(errors[:1] if alone else errors, frames.package_of(origin.module))
    return found or ([origin.place] if origin.place else [])


def _message_counts(error: BaseException, origin: Origin) -> bool:
    package = frames.package_of(origin.module)
    if type(error) in _BARE and raised_by_application(error, package):
        return True
    return not frames.places(evidence.chain(error), package)


def _source_words(message: str, errors: list[BaseException], origin: Origin, *, alone: bool) -> str | None:
    """Returns what was written for it where it was raised, or in the handler that returned it."""
    if errors:
        return words_of_failure(errors, frames.package_of(origin.module), alone=alone)
    return None if origin.code is None else words_of_answer(message, origin.code)


def _declared(error: BaseException, origin: Origin) -> str | None:
    """Returns the application's own name for the cause, if it gives one."""
    for function in origin.rules.fingerprint:
        try:
            found: object = function(error)
        except Exception as raised:
            found = raised
        if isinstance(found, str) and found:
            return found
        if found is not None:
            origin.rules.on_error("fingerprint", function, found)
    return None


def _message(error: BaseException) -> str:
    kind, text = type(error), evidence.text_of(error, MAX_MESSAGE)
    if text is None:
        text = "(the exception could not be shown as text)"
    # The text of a built-in exception often says little without its name: KeyError('missing') is just 'missing'.
    named = kind.__module__ == "builtins" and kind not in (Exception, RuntimeError)
    return clean(f"{kind.__name__}: {text}" if named and text else text or kind.__name__)[:MAX_MESSAGE]


def _stack(error: BaseException) -> str:
    try:
        text = _cut("".join(_formatted(error)))
    except Exception:
        text = f"{type(error).__qualname__} (its traceback could not be formatted)"
    return _cut(clean(text))


def _formatted(error: BaseException) -> Iterator[str]:
    """Formats a traceback. Each text is cut before: that of an exception may be of any size."""
    waiting = [whole := traceback.TracebackException.from_exception(error)]
    while waiting:
        one = waiting.pop()
        shown = getattr(one, "_str", None)  # as Python has kept it since 3.5
        if isinstance(shown, str) and len(shown) > MAX_STACK:
            one._str = _cut(shown)  # type: ignore[attr-defined]
        waiting += [inner for inner in (one.__cause__, one.__context__, *(one.exceptions or ())) if inner is not None]
    for line in whole.format():
        yield line if len(line) <= MAX_STACK else _cut(line)


def _cut(text: str) -> str:
    # The end of a traceback says what happened, its start says where it began: keep both.
    half = MAX_STACK // 2
    return text if len(text) <= MAX_STACK else f"{text[:half]}\n... shortened ...\n{text[-half:]}"


# -- fingerprints: which failures have one cause ---------------------------------------------------------------------
#
# A pure function of one failure. The exceptions' types and the application's own frames (module and function) say
# what happened where; status, errno, SQLSTATE and a provider's code always count. Of what the application raised
# itself, what its authors wrote for it counts too (``kernel/raise_site.py``); of anything else without a frame, the
# message without its variable parts. When a connection or a time-out fails, the cause is who did not answer, whoever
# called: one dead database is one cause in thirty kinds. Who did not answer is a name; of bare addresses, of which
# there may be hundreds, the port and the frame that called them count. An application may decide it all itself.
#
# The first digit of a name is the version of the rule that made it: a rule that changes gets a new one, and all other
# causes keep their names. Stores go on with an older cause that shows the same summary.

_PEERS_ONLY = frozenset({"connect", "timeout", "tls"})
# A driver that lost its server does not always say which; an application has one of each.
_SERVERS = frozenset(
    "psycopg psycopg_pool psycopg2 asyncpg sqlalchemy redis pymongo pymysql MySQLdb aiopg django".split()  # noqa: SIM905
)


@dataclass(slots=True, frozen=True)
class Facts:
    """Everything that a fingerprint may depend on."""

    code: str
    reason: str = ""
    exceptions: tuple[str, ...] = ()  # type names, the outermost first
    frames: tuple[str, ...] = ()
    marks: Marks = field(default_factory=dict)
    written: str | None = None  # by the authors, for what the application raised
    message: str | None = None  # of what has no place: without its variable parts
    peer: str | None = None
    cause: str | None = None  # the application's own word
    place: str = ""  # of what is no exception: a kind, a handler


def fingerprint(facts: Facts) -> str:
    """Returns the name of the cause that a failure has."""
    if facts.cause is not None:
        return _name(2, "cause", facts.cause)
    marks = [f"{name}={value}" for name, value in sorted(facts.marks.items())]
    outer, *inner = facts.exceptions or ("",)
    if outer and facts.reason in _PEERS_ONLY and "status" not in facts.marks:
        # Inner exceptions differ by the way a client works (threads or a loop, one address or several).
        server = outer.partition(".")[0] in _SERVERS
        service = None if facts.peer is None else service_of(facts.peer)
        if service is not None and server:
            return _name(3, "server", outer, service, *marks)
        if service is not None:
            return _name(3, "addresses", outer, service, *facts.frames[-1:], *marks)
        if facts.peer is not None:
            return _name(2, "peer", outer, facts.peer, *marks)
        if server and facts.reason == "connect":
            return _name(2, "server", outer, *marks)
    types = [outer, *sorted(set(inner) - {outer})]
    place = [] if outer else ["reason", facts.reason, facts.place]
    parts = [facts.code, *place, "types", *types, "frames", *facts.frames, "marks", *marks]
    if facts.written is not None:
        return _name(4, *parts, "written", facts.written)
    return _name(2, *parts, *([] if facts.message is None else ["message", facts.message]))


def _name(version: int, *parts: str) -> str:
    text = "\x1f".join(parts).encode("utf-8", "replace")
    return f"{version:x}" + hashlib.blake2b(text, digest_size=8).hexdigest()[1:]
