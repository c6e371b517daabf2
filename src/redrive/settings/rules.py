"""Reads the tables ``[alerts]``, thresholds by queue and an application's own rules, and ``[[failure_rules]]``: what
failures count as, for whoever runs an application."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from redrive.kernel.alerts.own import COMPARISONS, OwnRule
from redrive.kernel.alerts.rules import NAMES
from redrive.kernel.alerts.thresholds import EVERY_QUEUE, SPANS, THRESHOLDS, Limits, Thresholds, merged
from redrive.kernel.diagnosis import Level
from redrive.kernel.wording import EXAMPLES, seconds_of, suggestion
from redrive.settings.values import Problem, Problems, Unfit, below, from_json, read

ALIKE = 0.8  # from here on a name that is not known is taken for one that is
THRESHOLDS_TABLE = "thresholds"
ALERTS_EXAMPLE = '{"thresholds": {"reports": {"depth": 500, "oldest_age": 60}}}'
FAILURE_RULES_EXAMPLE = '[{"status": 402, "reason": "unpaid", "failure_type": "param_error", "retry": false}]'
_OWN = ("query", "connection", "op", "threshold", "for", "level", "summary", "queue")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(slots=True, frozen=True)
class AlertSettings:
    """What is said about alerts: from when on rules are broken, and rules of the application's own."""

    limits: Limits = field(default_factory=Limits)
    own: Mapping[str, OwnRule] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # One that nobody has written is the default of every application in the process: nobody may add to it.
        object.__setattr__(self, "own", MappingProxyType(dict(self.own)))

    def __str__(self) -> str:
        limits = [EVERY_QUEUE] * (self.limits.every != Thresholds()) + sorted(self.limits.queues)
        parts = [f"thresholds of {', '.join(limits)}"] if limits else []
        parts += [f"rules {', '.join(self.own)}"] if self.own else []
        return "; ".join(parts)


def parse_alerts(given: Any) -> AlertSettings:
    """Returns what such a table says. Raises Unfit with all that is wrong."""
    if isinstance(given, AlertSettings):
        return given
    tables: dict[str, Any] = read(dict[str, Any], from_json(given, ALERTS_EXAMPLE))
    limits, own = Limits(), dict[str, OwnRule]()
    with Problems() as problems:
        for name, table in tables.items():
            with problems.below(name):
                if name == THRESHOLDS_TABLE:
                    limits = _limits(table)
                else:
                    own[name] = _own(name, table)
    return AlertSettings(limits, own)


def parse_span(given: Any) -> float:
    """Returns a span of time in seconds: a number of them, or a text with its unit, ``30s``, ``5m``, ``8h``, ``7d``."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        return float(given)
    found = seconds_of(given) if isinstance(given, str) else None
    if found is None:
        raise Unfit(Problem((), f"it is no span of time; write {EXAMPLES}", given))
    return found


def _limits(given: Any) -> Limits:
    tables: dict[str, dict[str, Any]] = read(dict[str, dict[str, Any]], given)
    found: dict[str, Thresholds] = {}
    with Problems() as unknown:
        for queue, table in tables.items():
            unknown += [Problem((queue, name), _unknown(name, THRESHOLDS)) for name in table if name not in THRESHOLDS]
    with Problems() as problems:
        for queue, table in merged(tables).items():
            with problems.below(queue):
                found[queue] = read(Thresholds, {name: _seconds(name, value) for name, value in table.items()})
    return Limits(found.pop(EVERY_QUEUE, Thresholds()), found)


def _seconds(name: str, value: Any) -> Any:
    """Returns a threshold that is a span of time in seconds, and others as they are."""
    if not name.endswith(SPANS) or not isinstance(value, str):
        return value
    with below(name):
        return parse_span(value)


def problems_of_rules(alerts: AlertSettings, of_features: Collection[str], others: bool) -> Iterator[Problem]:
    """Yields what is said about rules that there are not, and rules of the application that are named like one of a
    feature's. ``of_features``: the rules of features. ``others``: there may be more features, so that only what is much
    like a known name is taken for that one, misspelt."""
    known, limits = [*NAMES, *of_features], alerts.limits
    for queue, own in {EVERY_QUEUE: limits.every, **limits.queues}.items():
        for rule in own.off:
            if rule not in known and (not others or difflib.get_close_matches(rule, known, 1, ALIKE)):
                yield Problem((THRESHOLDS_TABLE, queue, "off"), _unknown(rule, known), rule)
    for name in alerts.own:
        if name in of_features:
            yield Problem((name,), "it is the name of a rule of a feature", name)


def _own(name: str, given: Any) -> OwnRule:
    if not _NAME.fullmatch(name) or name in NAMES:
        taken = "it is the name of a rule that there is" if name in NAMES else "a name has small letters, digits and _"
        raise Unfit(Problem((), taken, name))
    table: dict[str, Any] = read(dict[str, Any], given)
    if unknown := [Problem((key,), _unknown(key, _OWN), table[key]) for key in table if key not in _OWN]:
        raise Unfit(*unknown)
    text = _field(table, "query", str, "")
    if not text.strip():
        raise Unfit(Problem(("query",), "it is needed: a query that answers with one number"))
    op = _field(table, "op", str, ">")
    if op not in COMPARISONS:
        raise Unfit(Problem(("op",), f"it is one of {' '.join(COMPARISONS)}", op))
    with below("for"):
        hold = parse_span(table.get("for", 0))
    return OwnRule(
        name,
        text,
        op,
        _field(table, "threshold", float, 0.0),
        hold,
        Level(_field(table, "level", Literal["warning", "critical"], "warning")),
        _field(table, "summary", str, ""),
        _field(table, "connection", str | None, None),
        _field(table, "queue", str, ""),
    )


def _field(table: Mapping[str, Any], name: str, kind: Any, default: Any) -> Any:
    with below(name):
        return read(kind, table[name]) if name in table else default


def _unknown(name: str, known: Iterable[str]) -> str:
    return f"{name!r} is not known; {suggestion(name, known)}"


# -- [[failure_rules]] -------------------------------------------------------------------------------------------------


class RuleTable(list[Any]):
    """Configured rules in their order. As text it has what they are about."""

    def __str__(self) -> str:
        return ", ".join(rule.reason for rule in self)


def parse_failure_rules(given: Any) -> RuleTable:
    """Returns the rules of such tables. Raises Unfit with all that is wrong, each with its place."""
    from redrive.kernel.failure_rule import read_rules  # rarely wanted

    given = from_json(given, FAILURE_RULES_EXAMPLE)
    if not isinstance(given, list | tuple):
        raise Unfit(Problem((), "it is a list of rules, in redrive.toml [[failure_rules]]", given))
    rules, mistakes = read_rules(given)
    if mistakes:
        places = [((nth,) if error.field is None else (nth, error.field), error) for nth, error in mistakes]
        raise Unfit(*(Problem(place, error.message, hint=error.hint or "") for place, error in places))
    return RuleTable(rules)
