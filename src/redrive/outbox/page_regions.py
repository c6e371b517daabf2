"""The live parts of the outbox's pages: figures, failures, events, the sink, and charts."""

from __future__ import annotations

from collections.abc import Mapping

from redrive.console.live import Sample, seldom
from redrive.console.regions.history import DRAWN_IN_A_STEP, PERIODS_SHOWN, SELDOM_S, TYPES, Charts
from redrive.console.text import duration, short_number
from redrive.feature import Operator
from redrive.feature.console import Chart, Series, draw, render
from redrive.kernel.operation import Status
from redrive.ops import views
from redrive.ops.history import History, parse_period
from redrive.ops.views import View
from redrive.outbox.compare import still_differs
from redrive.outbox.event import queue_of
from redrive.outbox.index_job import VERIFY
from redrive.outbox.service import OutboxService

MOST_OPERATIONS, WORK_SHOWN = 50, 3
PARTS = {
    "#figures": "outbox/figures.html",
    "#sink": "outbox/sink.html",
    "#failures": "outbox/failures.html",
    "#events": "outbox/events.html",
    "#work": "outbox/work.html",
}


async def sample_all(operator: Operator) -> Mapping[str, str]:
    """Samples the list of projections."""
    found = await operator.of(OutboxService).overview()
    return {"#projections": render("outbox/table.html", operator, projections=found)}


def sample_one(projection: str) -> Sample:
    """Samples the page of a projection. Its forms belong to whoever looks: of what they act on it says that it has
    changed."""

    async def sample(operator: Operator) -> Mapping[str, str]:
        shown, now = await operator.of(OutboxService).show(projection), await operator.health.now()
        work = await work_of(operator, projection)
        parts = {name: render(part, operator, one=shown, work=work, now=now) for name, part in PARTS.items()}
        acted_on = [shown["paused"] is None, shown["failed"] > 0, *((one["id"], one["status"]) for one in work)]
        return parts | {"changed": str(acted_on)}

    return sample


async def work_of(operator: Operator, projection: str) -> list[View]:
    """Returns the latest rebuilds and comparisons of a projection; ``differs``: of a comparison that is over, whether
    something still does."""
    latest = [
        views.operation(one, sight=operator.sight) for one in await operator.operations.list(limit=MOST_OPERATIONS)
    ]
    queue = queue_of(projection)
    found = [one for one in latest if one["work"] and one["filter"].get("queue") == queue][:WORK_SHOWN]
    return [View(one, differs=_differs(one)) for one in found]


def _differs(one: View) -> bool | None:
    compared = one["action"] == VERIFY and one["status"] == Status.COMPLETED
    return still_differs(one["work"]["result"]) if compared else None


def charts(argument: str) -> Sample:
    """Samples the charts of a projection: ``PERIOD.NAME``, some times while one step of theirs goes on."""
    period, _, projection = argument.partition(".")
    step = parse_period(period).step.total_seconds()

    async def sample(operator: Operator) -> Mapping[str, str]:
        found = await history_of(operator, projection, period)
        return {"#charts": render("regions/charts.html", operator, history=found)}

    return seldom(sample, min(step / DRAWN_IN_A_STEP, SELDOM_S))


async def history_of(operator: Operator, projection: str, period: str) -> Charts:
    """Returns the charts of a projection over a period."""
    found = await operator.health.history(period, queue_of(projection))
    return Charts(period, PERIODS_SHOWN, drawn(found))


def drawn(found: History) -> list[Chart]:
    """Returns charts in the words of the outbox: what was done, how much is on its way, how old it is, what failed."""
    step, at = duration(found.step.total_seconds()), found.moments
    ended = [Series("c2", "done", found.completed), Series("c3", "failed", found.failed)]
    on_its_way = [
        Series("c1", "lag", _sums(found)),
        Series("c5", "of it, retries", found.delayed),
        Series("c3", "failed", found.dead),
    ]
    failures = [
        Series(f"c{i + 1}", name, found.attempts_failed.get(name, [0] * len(at))) for i, name in enumerate(TYPES)
    ]
    age = [Series("c4", "age", found.oldest_age)]
    return [
        draw("Throughput", f"events in {step}", at, ended, short_number, stacked=True),
        draw("Lag", "events that are not done, mean of the step", at, on_its_way, short_number),
        draw("Oldest age", "of the first that waits", at, age, duration, times=True),
        draw("Failed attempts", f"by type, in {step}", at, failures, short_number, stacked=True),
    ]


def _sums(found: History) -> list[float | None]:
    """Returns how many events were not done: pending and processing."""
    levels = zip(found.depth, found.delayed, found.running, found.paused, strict=True)
    return [None if each[0] is None else sum(one or 0.0 for one in each) for each in levels]
