"""What the overview shows: problems, totals, kinds."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from redrive.console.templates_env import render
from redrive.kernel.diagnosis import Finding, Level
from redrive.kernel.task import State
from redrive.ops.doctor_of_all import others_away
from redrive.ops.history import Rate
from redrive.ops.inspect import Stats
from redrive.ops.operator import Operator
from redrive.ops.shell import Shell

MOST_KINDS = 200


@dataclass(slots=True, frozen=True)
class Row:
    """One kind: its tasks by state, and its dead letters."""

    name: str
    totals: Mapping[str, int]
    dead_letters: int
    forgotten: int  # of the cancelled
    rate: Rate
    oldest: datetime | None  # since when its first task waits; None where none does, or others stand before it


@dataclass(slots=True, frozen=True)
class Shown:
    now: datetime
    problems: list[Finding]
    healthy: bool
    totals: Mapping[str, int]
    dead_letters: int
    kinds: list[Row]
    more_kinds: int
    workers: int
    whole: bool
    shell: Shell

    def count(self, level: str) -> int:
        """Returns how many problems there are of a level."""
        return sum(one.level.value == level for one in self.problems)


async def look(operator: Operator) -> Shown:
    """Returns what is wrong, the worst first, and exact totals."""
    stats = await operator.health.stats()
    findings = [*await others_away(operator), *await operator.health.examine()]
    letters, forgotten, rates = stats.dead_letters(), stats.forgotten(), await operator.health.rates()
    oldest = await operator.health.oldest_kinds()
    named, number = await asyncio.to_thread(_first, stats)  # there may be many
    kinds = [
        Row(
            name,
            totals,
            letters.get(name, 0),
            forgotten.get(name, 0),
            rates.kinds.get(name) or Rate(),
            oldest.get(name),
        )
        for name, totals in named
    ]
    problems = [one for one in findings if one.level is not Level.OK]
    return Shown(
        stats.overview.now,
        problems,
        not any(one.level in (Level.CRITICAL, Level.WARNING) for one in problems),
        stats.totals(),
        sum(letters.values()),
        kinds,
        number - len(kinds),
        stats.alive(),
        operator.sight.whole,
        operator.shell,
    )


def _first(stats: Stats) -> tuple[list[tuple[str, dict[str, int]]], int]:
    """Returns the kinds with the most failed tasks, then the most of all, with their totals; and how many kinds there
    are."""
    found = stats.by("kind")
    failed = State.FAILED.value
    return heapq.nsmallest(
        MOST_KINDS, found.items(), key=lambda one: (-one[1][failed], -sum(one[1].values()), one[0])
    ), len(found)


def sampler(_: str) -> Callable[[Operator], Awaitable[Mapping[str, str]]]:
    return sample


async def sample(operator: Operator) -> Mapping[str, str]:
    shown = await look(operator)
    return {
        f"#{name}": render(f"regions/{name}.html", operator, shown=shown, now=shown.now)
        for name in ("problems", "levels", "totals", "kinds")
    }
