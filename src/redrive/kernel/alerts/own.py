"""Rules of an application's own: a query of its own tables, compared with a threshold."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from redrive.kernel.alerts.facts import Answer
from redrive.kernel.alerts.rules import Condition, Unit
from redrive.kernel.diagnosis import Level

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(slots=True, frozen=True)
class OwnRule:
    """``query`` answers with one number; compared by ``op`` with ``threshold`` it has to be true for ``hold`` seconds.
    ``queue``: whose triage notes belong to it."""

    name: str
    query: str
    op: str = ">"
    threshold: float = 0.0
    hold: float = 0.0
    level: Level = Level.WARNING
    summary: str = ""
    connection: str | None = None
    queue: str = ""

    @property
    def limit(self) -> str:
        return Unit.NUMBER.told(self.threshold)

    def broken(self, value: float) -> bool:
        return COMPARISONS[self.op](value, self.threshold)

    def condition(self, answer: Answer) -> Condition | None:
        """Returns what is broken; a query that cannot be answered is, too: nobody watches then. One that answers with
        nothing (a share of no rows) is not."""
        if answer.fault is not None:
            text = f"{self.name} cannot be watched: {answer.fault}"
            return Condition(self.name, self.queue, 0.0, text, Level.WARNING, self.hold, _FIX)
        if answer.value is None or not self.broken(answer.value):
            return None
        text = f"{self.summary or self.name}: {Unit.NUMBER.told(answer.value)} ({self.op} {self.limit})"
        return Condition(self.name, self.queue, answer.value, text, self.level, self.hold, _FIX)


_FIX = "redrive doctor shows what its query answers; it stands in redrive.toml"


def own_conditions(rules: Mapping[str, OwnRule], answers: Mapping[str, Answer]) -> Iterator[Condition]:
    """Yields those of an application's rules that are broken now."""
    for name, rule in rules.items():
        found = rule.condition(answers[name]) if name in answers else None
        if found is not None:
            yield found
