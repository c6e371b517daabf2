"""Rules that a feature brings: known by name before anything is wrong, so that they can be silenced, put off, and be in
the rule file of Prometheus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redrive.errors import ConfigError
from redrive.kernel.alerts.own import COMPARISONS, Look, OwnRule
from redrive.kernel.alerts.rules import NAMES, Unit
from redrive.kernel.diagnosis import Finding, Level

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store

Examine = Callable[["Store", Any], Awaitable[Sequence[Finding]]]


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
