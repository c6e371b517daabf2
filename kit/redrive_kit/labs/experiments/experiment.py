"""What an experiment is: its parameters, in full and short, and what it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from redrive.kernel.alerts.thresholds import Thresholds
from redrive_kit.labs.kit.lab_run import LabRun


@dataclass(slots=True, frozen=True)
class Experiment:
    """``full`` and ``quick`` are settings of the outbox by variable; ``seconds`` and ``quick_seconds`` how long what is
    broken stays so. ``thresholds``: from when on alerts fire for its queue."""

    number: int
    title: str
    about: str  # what must be seen, in a line
    run: Callable[[LabRun, float], Awaitable[None]]
    full: Mapping[str, str] = field(default_factory=dict)
    quick: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    quick_seconds: float = 0.0
    thresholds: Thresholds | None = None

    @property
    def name(self) -> str:
        """Its projection, and the queue below ``outbox:``."""
        return f"lab{self.number}"
