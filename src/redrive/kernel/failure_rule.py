"""An application's own table of what failures count as: each row says which failures, and what they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from redrive.errors import ConfigError, RedriveError
from redrive.kernel import evidence
from redrive.kernel.classify import Classification, FailureType, names_of
from redrive.kernel.task import check_name

MAX_DEPTH = 8  # how far causes are followed
READ = 4_000  # characters of a message in which words are looked for
_CLASS = re.compile(r"[1-5]xx")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
Names = str | Sequence[str]


class BadRule(ConfigError):
    """A rule that cannot be used. ``field``: what of it is wrong; None where that is the whole of it."""

    code = "FAILURE_RULE_INVALID"

    def __init__(self, message: str, *, hint: str | None = None, field: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field


@contextmanager
def _about(field: str) -> Iterator[None]:
    """Says of a mistake which field it is in."""
    try:
        yield
    except RedriveError as error:
        raise BadRule(error.message, hint=error.hint, field=field) from None


@dataclass(slots=True, frozen=True, kw_only=True)
class FailureRule:
    """One row: failures of which everything fits that is given here are ``reason``, count as ``failure_type``, and are
    tried again or not.

    ``status``: an HTTP status, ``402``, or a class of them, ``"5xx"``. ``exception``: a class or its name, ``KeyError``
    or ``"stripe.CardError"``, and what derives from it. ``code``: what the provider calls it. ``words``: a part of the
    message, in small or capital letters. Each may also be a list, of which one fits.
    """

    reason: str
    failure_type: FailureType | str
    retry: bool = True
    status: int | str | Sequence[int | str] | None = None
    exception: type[BaseException] | str | Sequence[type[BaseException] | str] | None = None
    code: Names | None = None
    words: Names | None = None
    _status: tuple[int | str, ...] = field(init=False, default=(), repr=False, compare=False)
    _names: tuple[str, ...] = field(init=False, default=(), repr=False, compare=False)
    _codes: tuple[str, ...] = field(init=False, default=(), repr=False, compare=False)
    _words: tuple[str, ...] = field(init=False, default=(), repr=False, compare=False)
    _found: Classification = field(init=False, default=Classification("rule"), repr=False, compare=False)

    def __post_init__(self) -> None:
        with _about("reason"):
            check_name(self.reason, "reason")
        with _about("status"):
            self._set("_status", [_checked_status(one) for one in _listed(self.status)])
        with _about("exception"):
            self._set("_names", [_name(one) for one in _listed(self.exception)])
        with _about("code"):
            self._set("_codes", [_text("code", one) for one in _listed(self.code)])
        with _about("words"):
            self._set("_words", [_text("words", one).lower() for one in _listed(self.words)])
        if not (self._status or self._names or self._codes or self._words):
            raise BadRule("it fits everything", hint="say status, exception, code or words")
        if not isinstance(self.retry, bool):
            raise BadRule(f"retry is True or False, not {self.retry!r}", field="retry")
        with _about("failure_type"):
            object.__setattr__(self, "_found", Classification(self.reason, self.failure_type, self.retry))

    def _set(self, name: str, found: Sequence[Any]) -> None:
        object.__setattr__(self, name, tuple(found))

    @property
    def conditions(self) -> tuple[tuple[Any, ...], ...]:
        """What has to fit: two rules that are alike in this fit the same failures."""
        return self._status, self._names, self._codes, self._words

    def classify(self, error: BaseException) -> Classification | None:
        """Returns what an exception counts as, if this rule fits it, or something that it was explicitly made of."""
        return self._found if any(self._fits(one) for one in _made_of(error)) else None

    def type_of(self, message: str) -> FailureType | None:
        """Returns the type of a failure of which there is only a message: rules of words alone decide that."""
        others = self._status or self._names or self._codes
        return None if others or not self._says(message) else self._found.type

    def document(self) -> dict[str, Any]:
        """Returns the row for people to read."""
        return {
            "status": [*self._status],
            "exception": [*self._names],
            "code": [*self._codes],
            "words": [*self._words],
            "reason": self.reason,
            "failure_type": self._found.type.value,
            "retry": self.retry,
        }

    def _fits(self, error: BaseException) -> bool:
        if self._names and not any(name in self._names for name in names_of(type(error))):
            return False
        if self._status and not self._has_status(evidence.status(error)):
            return False
        if self._codes and _code_of(error) not in self._codes:
            return False
        return not self._words or self._says(evidence.text_of(error, READ) or "")

    def _has_status(self, status: int | None) -> bool:
        return status is not None and (status in self._status or f"{status // 100}xx" in self._status)

    def _says(self, message: str) -> bool:
        text = message[:READ].lower()
        return any(word in text for word in self._words)


def check_rules(given: object) -> list[FailureRule]:
    """Returns the rules of an application; the first mistake is said with the place of its rule."""
    if isinstance(given, str | Mapping | FailureRule) or not isinstance(given, Iterable):
        raise ConfigError(f"failure_rules is a list of FailureRule values, not {str(given)[:80]!r}")
    rules, mistakes = read_rules(given)
    for nth, error in mistakes:
        raise ConfigError(f"failure_rules[{nth}]: {error.message}", hint=error.hint)
    return rules


def read_rules(given: Iterable[object]) -> tuple[list[FailureRule], list[tuple[int, BadRule]]]:
    """Returns the rules of a table, and what is wrong with others, by their places."""
    found: dict[int, FailureRule] = {}
    mistakes: list[tuple[int, BadRule]] = []
    for nth, one in enumerate(given):
        try:
            rule = rule_of(one)
        except BadRule as error:
            mistakes.append((nth, error))
            continue
        same = [before for before, other in found.items() if other.conditions == rule.conditions]
        if same:
            message = f"it never applies: rule {same[0]} fits the same failures first"
            mistakes.append((nth, BadRule(message, hint="remove one of them")))
        found[nth] = rule
    return list(found.values()), mistakes


def rule_of(given: object) -> FailureRule:
    """Returns a rule, also of a table with its fields."""
    if isinstance(given, FailureRule):
        return given
    if not isinstance(given, Mapping):
        raise BadRule(f"it is {type(given).__name__}, not a FailureRule")
    known = [one.name for one in fields(FailureRule) if one.init]
    if unknown := [str(name) for name in given if name not in known]:
        raise BadRule(f"{unknown[0]!r} is not known", hint=f"there are {', '.join(known)}", field=unknown[0])
    if missing := [name for name in ("reason", "failure_type") if name not in given]:
        raise BadRule(f"{missing[0]} is needed")
    return FailureRule(**given)


def _made_of(error: BaseException) -> Iterator[BaseException]:
    """Yields an exception, what it wraps, and what it was raised ``from``; not what merely happened before."""
    waiting, seen = [error], 0
    while waiting and seen < MAX_DEPTH:
        one = waiting.pop(0)
        seen += 1
        yield one
        waiting.extend(evidence.wrapped(one))
        if one.__cause__ is not None:
            waiting.append(one.__cause__)


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    return [*given] if isinstance(given, list | tuple | set | frozenset) else [given]


def _checked_status(given: object) -> int | str:
    if isinstance(given, str) and _CLASS.fullmatch(given):
        return given
    if isinstance(given, int) and not isinstance(given, bool) and 100 <= given <= 599:
        return given
    raise ConfigError(f"status is a number from 100 to 599 or a class such as '5xx', not {given!r}")


def _name(given: object) -> str:
    if isinstance(given, type) and issubclass(given, BaseException):
        return f"{given.__module__}.{given.__qualname__}"
    if isinstance(given, str) and _DOTTED.fullmatch(given):
        return given
    raise ConfigError(f"exception is a class of exceptions or its name, 'package.Class', not {given!r}")


def _text(what: str, given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise ConfigError(f"{what} is a text that is not empty, or a list of them, not {given!r}")
    return given


def _code_of(error: BaseException) -> str | None:
    """Returns what a provider calls it; some have numbers for that."""
    own = evidence.look(error, "code")
    return evidence.provider_code(error) or (str(own)[:100] if isinstance(own, str | int) else None)
