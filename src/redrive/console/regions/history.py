"""The charts of how things went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redrive.console.charts import Chart, Series, draw
from redrive.console.live import Sample, seldom
from redrive.console.templates_env import render
from redrive.console.text import duration, short_number
from redrive.ops.history import History, parse_period
from redrive.ops.operator import Operator

PERIODS_SHOWN = ("1h", "24h", "7d", "30d")
TYPES = ("model_error", "param_error", "timeout", "network", "unknown")
DRAWN_IN_A_STEP = 12
SELDOM_S = 60.0


@dataclass(slots=True, frozen=True)
class Charts:
    period: str
    periods: tuple[str, ...]
    charts: list[Chart]


async def look(operator: Operator, period: str, queue: str | None = None, kind: str | None = None) -> Charts:
    found = await operator.health.history(period, queue, kind)
    return Charts(period, PERIODS_SHOWN, drawn(found))


def sampler(period: str) -> Sample:
    """Samples the charts of a period, some times while one step of theirs goes on; an unknown period is refused."""
    step = parse_period(period).step.total_seconds()

    async def sample(operator: Operator) -> Mapping[str, str]:
        return {"#charts": render("regions/charts.html", operator, history=await look(operator, period))}

    return seldom(sample, min(step / DRAWN_IN_A_STEP, SELDOM_S))


def drawn(found: History) -> list[Chart]:
    """Returns the charts of a history: how much ended, what failed by type, what waits, how long it took."""
    step = duration(found.step.total_seconds())
    ended = [Series("c2", "completed", found.completed), Series("c3", "failed", found.failed)]
    failures = [
        Series(f"c{i + 1}", name, found.attempts_failed.get(name, [0] * len(found.moments)))
        for i, name in enumerate(TYPES)
    ]
    waiting = [Series("c1", "queued", found.depth), Series("c3", "failed", found.dead)]
    return [
        draw("Throughput", f"tasks in {step}", found.moments, ended, short_number, stacked=True),
        draw("Failed attempts", f"by type, in {step}", found.moments, failures, short_number, stacked=True),
        draw("Depth", "tasks, mean of the step", found.moments, waiting, short_number),
        draw(
            "Oldest age",
            "of the first that waits",
            found.moments,
            [Series("c4", "age", found.oldest_age)],
            duration,
            times=True,
        ),
        draw("Pick-up", "from due to its first start", found.moments, _quantiles(found.wait), duration, times=True),
        draw("Run time", "of one attempt", found.moments, _quantiles(found.run), duration, times=True),
    ]


def _quantiles(values: Mapping[str, Sequence[float | None]]) -> list[Series]:
    return [Series(f"c{i + 1}", name, values[name]) for i, name in enumerate(("p50", "p95", "p99"))]
