"""The pages of projections in the console, and their live parts: how far behind sinks are, and acting on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Response

from redrive.console.filters import is_whole, refuse_unknown
from redrive.console.live import Sample, seldom
from redrive.console.page import FieldRefused
from redrive.console.regions.history import DRAWN_IN_A_STEP, PERIODS_SHOWN, SELDOM_S, TYPES, Charts
from redrive.console.text import duration, short_number
from redrive.errors import InvalidInput
from redrive.feature import Operator, Role
from redrive.feature.console import (
    Chart,
    FeaturePages,
    Item,
    Section,
    Series,
    TheForm,
    ThePage,
    draw,
    pages_router,
    render,
)
from redrive.kernel.operation import Status
from redrive.ops import views
from redrive.ops.history import History, parse_period
from redrive.ops.operator.declared import document
from redrive.ops.views import View
from redrive.outbox.compare import count_of_differences
from redrive.outbox.event import queue_of
from redrive.outbox.index_job import VERIFY
from redrive.outbox.service import DEFAULT_REPLAY, MOST_REPLAYED, Hits, OutboxService

router = pages_router("outbox")
MOST_HITS_SHOWN = 20
MOST_OPERATIONS, WORK_SHOWN = 50, 3
PARTS = {
    "#figures": "outbox/figures.html",
    "#sink": "outbox/sink.html",
    "#failures": "outbox/failures.html",
    "#events": "outbox/events.html",
    "#work": "outbox/work.html",
}


@router.get("")
async def all_projections(page: ThePage) -> Response:
    found = await page.operator.of(OutboxService).list()
    return await page.render("outbox/list.html", projections=found.items)


@router.get("/{projection}")
async def one_projection(page: ThePage, projection: str) -> Response:
    refuse_unknown(page, "period")
    one = await show(page.operator, projection)
    history = await history_of(page.operator, projection, page.query.get("period", "1h"))
    work = await work_of(page.operator, projection)
    return await page.render("outbox/projection.html", one=one, history=history, work=work)


@router.get("/{projection}/search")
async def search(page: ThePage, projection: str) -> Response:
    """What the sink finds; documents hold what payloads hold, so it is for those who may act."""
    page.operator.insist(Role.OPERATOR)
    refuse_unknown(page, "q")
    words = page.query.get("q", "")
    found = await page.operator.of(OutboxService).search(projection, words, MOST_HITS_SHOWN) if words else Hits([], [])
    return await page.render(
        "outbox/search.html", projection=projection, words=words, found=found, most=MOST_HITS_SHOWN
    )


@router.get("/{projection}/replay")
async def preview_replay(page: ThePage, projection: str) -> Response:
    """What a replay would be about; nothing is changed."""
    refuse_unknown(page, "limit")
    limit = page.query.get("limit", str(DEFAULT_REPLAY))
    if not is_whole(limit):
        raise InvalidInput(f"limit is from 1 to {MOST_REPLAYED:,}, not {limit[:20]!r}")
    plan = await page.operator.of(OutboxService).plan_replay([projection], int(limit))
    one = await show(page.operator, projection)
    return await page.render("outbox/replay.html", one=one, plan=plan, limit=int(limit), most=MOST_REPLAYED)


@router.post("/{projection}/replay")
async def replay(page: TheForm, projection: str) -> Response:
    """Replays as many as the page has shown: those that failed first, so what failed since is not among them."""
    number = page.form.whole("number", "the number")
    if number is None:
        raise FieldRefused("number", "it is not said how many", hint="preview it first")
    reason = page.form.needed("reason", "the reason")
    done = await page.operator.of(OutboxService).replay(projection, number, reason=reason)
    target = page.link(f"/outbox/{projection}")
    if not done.retried:
        return page.go(target, "Nothing was done: none of them is failed any more.", "warn")
    skipped = f"; {done.skipped:,} were not failed any more" if done.skipped else ""
    return page.go(target, f"{done.retried:,} event{'s are' if done.retried != 1 else ' is'} tried again{skipped}.")


@router.post("/{projection}/rebuild")
async def rebuild(page: TheForm, projection: str) -> Response:
    """Begins to rebuild the sink from its source; who does it here says why."""
    form = page.form
    reason, refused = form.needed("reason", "the reason"), form.whole("allow_refused", "the number of documents")
    own = page.operator.of(OutboxService)
    await own.rebuild(projection, refused or 0, form.is_on("allow_empty"), reason)
    return page.go(page.link(f"/outbox/{projection}"), "It is rebuilt; below is how far that has come.")


async def show(operator: Operator, projection: str) -> View:
    """Returns what somebody sees of a projection."""
    found: View = document(await operator.of(OutboxService).show(projection), operator.sight)
    return found


async def sample_all(operator: Operator) -> Mapping[str, str]:
    """Samples the list of projections."""
    found = await operator.of(OutboxService).list()
    return {"#projections": render("outbox/table.html", operator, projections=found.items)}


def sample_one(projection: str) -> Sample:
    """Samples the page of a projection. Its forms belong to whoever looks: of what they act on it says that it has
    changed."""

    async def sample(operator: Operator) -> Mapping[str, str]:
        one, now = await show(operator, projection), await operator.health.now()
        work = await work_of(operator, projection)
        parts = {name: render(part, operator, one=one, work=work, now=now) for name, part in PARTS.items()}
        acted_on = [one["paused"] is None, one["failed"] > 0, *((each["id"], each["status"]) for each in work)]
        return parts | {"changed": str(acted_on)}

    return sample


async def work_of(operator: Operator, projection: str) -> list[View]:
    """Returns the latest rebuilds and comparisons of a projection; ``differs``: of a comparison that is over, whether
    something still does."""
    latest = await operator.operations.records(limit=MOST_OPERATIONS)
    known = [views.operation(one, sight=operator.sight) for one in latest]
    queue = queue_of(projection)
    found = [one for one in known if one["work"] and one["filter"].get("queue") == queue][:WORK_SHOWN]
    return [View(one, differs=_differs(one)) for one in found]


def _differs(one: Mapping[str, Any]) -> bool | None:
    compared = one["action"] == VERIFY and one["status"] == Status.COMPLETED
    return count_of_differences(one["work"]["result"]) > 0 if compared else None


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


async def troubled(operator: Operator) -> int:
    return await operator.of(OutboxService).troubled()


async def used(operator: Operator) -> bool:
    return await operator.of(OutboxService).used()


pages = FeaturePages(
    router,
    Section(
        "See", (Item("Outbox", "/outbox", "Projections, and how far behind their sinks are", badge="outbox", key="e"),)
    ),
    topics={"outbox": lambda _: sample_all, "outbox-one": sample_one, "outbox-charts": charts},
    number=troubled,
    used=used,
    references={r"outbox:([\w.:-]+)": r"/outbox/\1"},
    services={"outbox": OutboxService},
)
