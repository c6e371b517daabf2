"""The options of ``redrive lab``, for all experiments of one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True, frozen=True)
class LabOptions:
    """What the command line says. ``url``: a store that is there; None makes a fresh one each."""

    url: str | None
    sink: str | None
    quick: bool
    by: str
    report: Path
    say: Callable[[str], None]
