"""Reads the tables ``[[failure_rules]]``: what failures count as, for whoever runs an application."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from redrive.settings.values import Problem, Unfit

if TYPE_CHECKING:
    from redrive.kernel.failure_rule import FailureRule

FAILURE_RULES_EXAMPLE = '[{"status": 402, "reason": "unpaid", "failure_type": "param_error", "retry": false}]'


class RuleTable(list[Any]):
    """Configured rules in their order. As text it has what they are about."""

    def __str__(self) -> str:
        return ", ".join(rule.reason for rule in self)


def parse_failure_rules(given: Any) -> RuleTable:
    """Returns the rules of such tables. Raises Unfit with all that is wrong, each with its place."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            raise Unfit(Problem((), f"it is not JSON; for example {FAILURE_RULES_EXAMPLE}")) from None
    if not isinstance(given, list | tuple):
        raise Unfit(Problem((), "it is a list of rules, in redrive.toml [[failure_rules]]", given))
    found: dict[int, FailureRule] = {}
    problems: list[Problem] = []
    for nth, one in enumerate(given):
        problem = _take(found, nth, one)
        if problem is not None:
            problems.append(problem)
    if problems:
        raise Unfit(*problems)
    return RuleTable(found.values())


def _take(found: dict[int, FailureRule], nth: int, given: object) -> Problem | None:
    """Adds a rule to those before it; returns why it cannot be used."""
    from redrive.kernel.failure_rule import BadRule, rule_of  # rarely wanted

    try:
        rule = rule_of(given)
    except BadRule as error:
        below = () if error.field is None else (error.field,)
        return Problem((nth, *below), error.message, hint=error.hint or "")
    for before, other in found.items():
        if other.conditions == rule.conditions:
            return Problem((nth,), f"it never applies: rule {before} fits the same failures first")
    found[nth] = rule
    return None
