"""What the command line says about the experiments that it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True, frozen=True)
class Run:
    """What the command line says about all of them. ``url``: a store that is there; None makes a fresh one each."""

    url: str | None
    sink: str | None
    quick: bool
    by: str
    report: Path
    say: Callable[[str], None]
