"""Rules besides the table's: an application's own, by a query of its tables, and those that its features bring. Each is
a number, compared with a threshold."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redrive.kernel.alerts.facts import Answer
from redrive.kernel.alerts.rules import Condition, Unit
from redrive.kernel.diagnosis import Level

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store

Look = Callable[["Store"], Awaitable[float | None]]
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
    """``query`` answers with one number, or a feature's ``look`` does; compared by ``op`` with ``threshold`` it has to
    be true for ``hold`` seconds. ``queue``: whose triage notes belong to it. ``told_by_findings``: doctor tells what is
    wrong without it. ``runbook``: an address, if not the one of all such rules."""

    name: str
    query: str
    op: str = ">"
    threshold: float = 0.0
    hold: float = 0.0
    level: Level = Level.WARNING
    summary: str = ""
    connection: str | None = None
    queue: str = ""
    look: Look | None = None
    unit: Unit = Unit.NUMBER
    fix: str = "redrive doctor shows what its query answers; it stands in redrive.toml"
    runbook: str = ""
    told_by_findings: bool = False

    @property
    def limit(self) -> str:
        return self.unit.in_words(self.threshold)

    def broken(self, value: float) -> bool:
        return COMPARISONS[self.op](value, self.threshold)

    def condition(self, answer: Answer) -> Condition | None:
        """Returns what is broken; a query that cannot be answered is, too: nobody watches then. One that answers with
        nothing (a share of no rows) is not."""
        if answer.fault is not None:
            text = f"{self.name} cannot be watched: {answer.fault}"
            return Condition(self.name, self.queue, 0.0, text, Level.WARNING, self.hold, self.fix, self.runbook)
        if answer.value is None or not self.broken(answer.value):
            return None
        text = f"{self.summary or self.name}: {self.unit.in_words(answer.value)} ({self.op} {self.limit})"
        return Condition(self.name, self.queue, answer.value, text, self.level, self.hold, self.fix, self.runbook)


def own_conditions(rules: Mapping[str, OwnRule], answers: Mapping[str, Answer]) -> Iterator[Condition]:
    """Yields those of an application's rules that are broken now."""
    for name, rule in rules.items():
        found = rule.condition(answers[name]) if name in answers else None
        if found is not None:
            yield found
