"""Rules besides the table's: an application's own, by a query of its tables, and those that its features bring. Each is
a number, compared with a threshold."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redrive.errors import ConfigError
from redrive.kernel.alerts.facts import Answer
from redrive.kernel.alerts.rules import NAMES, Condition, Unit
from redrive.kernel.diagnosis import Finding, Level

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store

Examine = Callable[["Store", Any], Awaitable[Sequence[Finding]]]
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


@dataclass(slots=True, frozen=True)
class AlertRule:
    """``look`` gets the store and the settings and returns a number; None: there is nothing to judge. Without it the
    number is how many findings of this name the feature's ``examine`` returns. Compared by ``op`` with ``threshold``
    (a number, or a function of the settings) it has to be true for ``hold`` seconds (likewise). ``summary`` says what
    is counted, ``fix`` what to do, ``runbook`` where that is written."""

    name: str
    summary: str
    look: Callable[[Store, Any], Awaitable[float | None]] | None = None
    threshold: float | Callable[[Any], float] = 0.0
    op: str = ">"
    level: Level = Level.WARNING
    hold: float | Callable[[Any], float] = 0.0
    unit: Unit = Unit.NUMBER
    fix: str = "redrive doctor"
    runbook: str = ""

    def check(self, feature: str, examine: Examine | None) -> None:
        """Refuses what could not be evaluated, or could be taken for another rule."""
        wrong = None
        if not self.name.startswith(f"{feature}_") or self.name in NAMES:
            wrong = f"a rule of feature {feature!r} is named {feature}_… and not like one of redrive's"
        elif self.op not in COMPARISONS:
            wrong = f"op is one of {' '.join(COMPARISONS)}, not {self.op!r}"
        elif self.level not in (Level.WARNING, Level.CRITICAL):
            wrong = f"its level is warning or critical, not {self.level.value}"
        elif self.look is None and examine is None:
            wrong = "it needs look, or the feature examine: findings of its name"
        if wrong is not None:
            raise ConfigError(f"the alert {self.name!r} cannot be used: {wrong}")

    def bound(self, examine: Examine | None, settings: Any) -> OwnRule:
        """Returns it for an application's settings, as it is evaluated and told."""
        return OwnRule(
            self.name,
            query="",
            op=self.op,
            threshold=self.threshold(settings) if callable(self.threshold) else self.threshold,
            hold=self.hold(settings) if callable(self.hold) else self.hold,
            level=self.level,
            summary=self.summary,
            look=self._reading(examine, settings),
            unit=self.unit,
            fix=self.fix,
            runbook=self.runbook,
            told_by_findings=self.look is None,
        )

    def _reading(self, examine: Examine | None, settings: Any) -> Look:
        async def read(store: Store) -> float | None:
            if self.look is not None:
                return await self.look(store, settings)
            found = await examine(store, settings) if examine is not None else ()
            return float(sum(one.code == self.name and one.level in (Level.WARNING, Level.CRITICAL) for one in found))

        return read
