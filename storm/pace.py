"""How long a storm takes: a fast one for the tests, a quick one for CI, a full one for nights."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Pace:
    name: str
    rate: float  # tasks offered per second, well below what two workers can do
    warm: float  # seconds before the baseline is taken
    baseline: float
    storm: float
    recovery: float
    limit: float  # a storm that takes longer than this has failed

    def pick(self, *, quick: float, full: float, fast: float | None = None) -> float:
        """A length or a number that a scenario chooses for itself."""
        if self.name == "fast":
            return quick if fast is None else fast
        return full if self.name == "full" else quick

    @property
    def judges_times(self) -> bool:
        """The fast pace runs beside other tests: neither rates nor delays say anything then."""
        return self.name != "fast"


FAST = Pace("fast", rate=150, warm=0.2, baseline=0.5, storm=1.5, recovery=0.2, limit=60)
QUICK = Pace("quick", rate=300, warm=0.3, baseline=1.7, storm=2.5, recovery=1.5, limit=75)
FULL = Pace("full", rate=400, warm=3, baseline=15, storm=30, recovery=15, limit=900)
PACES = {pace.name: pace for pace in (FAST, QUICK, FULL)}
