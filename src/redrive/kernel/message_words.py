"""Chooses which words of an exception's message name its cause: its own, and those of what it came from."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.kernel import frames
from redrive.kernel.constant import constant, statement_of
from redrive.kernel.message_template import HOLE, MAX_LOOKED_AT
from redrive.kernel.statements import written_along

MIN_QUOTED = 4  # characters: shorter ones stand in any text


def message_words(
    message: str, errors: Sequence[BaseException], package: str | None, *, counts: bool, alone: bool
) -> str | None:
    """Returns the constant words of a message where it ``counts``, else those that are written in the ``raise``
    statement if it is the application's: one class and one function may have several. Then, unless it stands
    ``alone``, those of the application's statements that it came from."""
    error, *origins = errors
    inner = {} if alone else _raised_before(origins, package)
    if len(set(inner.values())) > 1 and any(isinstance(one, BaseExceptionGroup) for one in errors):
        inner = {}  # which of them came together is chance
    quoted = [text for text in inner if len(text) >= MIN_QUOTED and text in message]
    for text in quoted:
        message = message.replace(text, HOLE)
    if counts and not quoted:
        own: str | None = constant(message, written_along(error.__traceback__, package))
    else:
        own = _stated(error, message, package)
    found = [words for words in (own, *sorted(set(inner.values()))) if words is not None]
    return HOLE.join(found) if found else None


def raised_by_application(error: BaseException, package: str | None) -> bool:
    """True if a ``raise`` statement of the application made it."""
    last = frames.raised_at(error)
    return last is not None and frames.own(last, package) and frames.raised_by_statement(error)


def _raised_before(errors: Sequence[BaseException], package: str | None) -> dict[str, str]:
    """Returns the messages of exceptions that the application raised, and the words written in their statements."""
    found: dict[str, str] = {}
    for error in errors:
        text = _text(error)
        words = _stated(error, text, package)
        if words is not None:
            found[text] = words
    return found


def _stated(error: BaseException, text: str, package: str | None) -> str | None:
    if not raised_by_application(error, package):
        return None
    return statement_of(text, written_along(error.__traceback__, package))


def _text(error: BaseException) -> str:
    try:
        return str(error)[:MAX_LOOKED_AT]
    except Exception:
        return ""
