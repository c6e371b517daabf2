"""Failures by type: how many tasks are failed by each now, how many attempts failed by it lately, and the trend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from redrive.kernel.classify import FailureRules, FailureType
from redrive.kernel.failed import FailureFilter
from redrive.kernel.failure_rule import FailureRule
from redrive.kernel.ports.store import Store
from redrive.ops.failed import statistics
from redrive.ops.history import Counts, history

MEANINGS = {
    FailureType.MODEL_ERROR: "the provider or its model: 401, 403, 5xx, not available",
    FailureType.PARAM_ERROR: "what was asked for: 400 and other 4xx, invalid input",
    FailureType.TIMEOUT: "it took too long: time-outs, 408, 504",
    FailureType.NETWORK: "the way there: connections, DNS, TLS, 429",
    FailureType.UNKNOWN: "nothing tells what it was",
}


@dataclass(slots=True, frozen=True)
class TypeFigures:
    """One type. ``failed``: tasks that are failed by it now. ``attempts``: attempts that failed by it in the period,
    and ``trend`` the same step by step, None where nobody looked."""

    type: str
    meaning: str
    failed: int
    attempts: int
    trend: Counts


@dataclass(slots=True, frozen=True)
class FailureTypes:
    """All types, and the application's own rules for them. ``moments`` are the beginnings of the steps of trends."""

    period: str
    step_seconds: float
    moments: list[datetime]
    types: list[TypeFigures]
    rules: list[dict[str, Any]]

    @property
    def some(self) -> bool:
        """Whether there is anything to tell."""
        return any(one.failed or one.attempts for one in self.types) or bool(self.rules)


async def failure_types(
    store: Store, rules: FailureRules, period: str, queue: str | None = None, kind: str | None = None
) -> FailureTypes:
    """Returns figures of all types, of everything or of a queue or kind; nothing is counted for it, all is kept."""
    went = await history(store, period, queue, kind)
    now = (await statistics(store, FailureFilter(queue=queue, kind=kind))).by_type
    empty: Counts = [None if value is None else 0 for value in went.completed]
    return FailureTypes(
        period,
        went.step_seconds,
        went.moments,
        [_figures(name, now.get(name, 0), went.attempts_failed.get(name, empty)) for name in FailureType],
        documents(rules),
    )


def documents(rules: FailureRules) -> list[dict[str, Any]]:
    """Returns the rows of an application's own table, in their order."""
    return [rule.document() for rule in _rows(rules.table)]


def _rows(table: Iterable[object]) -> list[FailureRule]:
    return [rule for rule in table if isinstance(rule, FailureRule)]


def _figures(name: FailureType, failed: int, trend: Counts) -> TypeFigures:
    return TypeFigures(name.value, MEANINGS[name], failed, sum(value or 0 for value in trend), trend)
