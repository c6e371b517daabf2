"""The pages of projections in the console: how far behind their sinks are, and acting on them."""

from __future__ import annotations

from fastapi import Response

from redrive.console.filters import is_whole, refuse_unknown
from redrive.console.page import FieldRefused
from redrive.errors import InvalidInput
from redrive.feature import Operator, Role
from redrive.feature.console import FeaturePages, Item, Section, TheForm, ThePage, pages_router
from redrive.outbox import page_regions as regions
from redrive.outbox.replay import DEFAULT_LIMIT, MOST
from redrive.outbox.service import OutboxService

router = pages_router("outbox")
MOST_HITS_SHOWN = 20


@router.get("")
async def all_projections(page: ThePage) -> Response:
    found = await page.operator.of(OutboxService).overview()
    return await page.render("outbox/list.html", projections=found)


@router.get("/{projection}")
async def one_projection(page: ThePage, projection: str) -> Response:
    refuse_unknown(page, "period")
    shown = await page.operator.of(OutboxService).show(projection)
    history = await regions.history_of(page.operator, projection, page.query.get("period", "1h"))
    work = await regions.work_of(page.operator, projection)
    return await page.render("outbox/projection.html", one=shown, history=history, work=work)


@router.get("/{projection}/search")
async def search(page: ThePage, projection: str) -> Response:
    """What the sink finds; documents hold what payloads hold, so it is for those who may act."""
    page.operator.insist(Role.OPERATOR)
    refuse_unknown(page, "q")
    words = page.query.get("q", "")
    own = page.operator.of(OutboxService)
    hits = await own.search(projection, words, MOST_HITS_SHOWN) if words else []
    gap = await own.search_gap(projection, words) if words else None
    return await page.render(
        "outbox/search.html", projection=projection, words=words, hits=hits, gap=gap, most=MOST_HITS_SHOWN
    )


@router.get("/{projection}/replay")
async def preview_replay(page: ThePage, projection: str) -> Response:
    """What a replay would be about; nothing is changed."""
    refuse_unknown(page, "limit")
    limit = page.query.get("limit", str(DEFAULT_LIMIT))
    if not is_whole(limit) or not 1 <= int(limit) <= MOST:
        raise InvalidInput(f"limit is from 1 to {MOST:,}, not {limit[:20]!r}")
    own = page.operator.of(OutboxService)
    plan = await own.plan_replay([projection], int(limit))
    return await page.render(
        "outbox/replay.html", one=await own.show(projection), plan=plan, limit=int(limit), most=MOST
    )


@router.post("/{projection}/replay")
async def replay(page: TheForm, projection: str) -> Response:
    """Replays as many as the page has shown: those that failed first, so what failed since is not among them."""
    number = page.form.whole("number", "the number")
    if number is None:
        raise FieldRefused("number", "it is not said how many", hint="preview it first")
    reason = page.form.needed("reason", "the reason")
    own = page.operator.of(OutboxService)
    done = await own.replay(await own.plan_replay([projection], number), reason)
    target = page.link(f"/outbox/{projection}")
    if not done.done:
        return page.go(target, "Nothing was done: none of them is failed any more.", "warn")
    skipped = f"; {done.left:,} were not failed any more" if done.left else ""
    return page.go(target, f"{done.done:,} event{'s are' if done.done != 1 else ' is'} tried again{skipped}.")


@router.post("/{projection}/verify")
async def verify(page: TheForm, projection: str) -> Response:
    """Begins to compare the sink with its source."""
    own, form = page.operator.of(OutboxService), page.form
    await own.verify(projection, reason=form.text("reason"), repair=form.is_on("repair"))
    return page.go(
        page.link(f"/outbox/{projection}"), "It is compared with its source; below is how far that has come."
    )


@router.post("/{projection}/rebuild")
async def rebuild(page: TheForm, projection: str) -> Response:
    """Begins to rebuild the sink from its source."""
    own, form = page.operator.of(OutboxService), page.form
    reason, refused = form.needed("reason", "the reason"), form.whole("allow_refused", "the number of documents")
    await own.rebuild(projection, reason=reason, allow_refused=refused or 0, allow_empty=form.is_on("allow_empty"))
    return page.go(page.link(f"/outbox/{projection}"), "It is rebuilt; below is how far that has come.")


async def troubled(operator: Operator) -> int:
    return await operator.of(OutboxService).troubled()


async def used(operator: Operator) -> bool:
    return await operator.of(OutboxService).used()


pages = FeaturePages(
    router,
    Section(
        "See", (Item("Outbox", "/outbox", "Projections, and how far behind their sinks are", badge="outbox", key="e"),)
    ),
    topics={"outbox": lambda _: regions.sample_all, "outbox-one": regions.sample_one, "outbox-charts": regions.charts},
    number=troubled,
    used=used,
    references={r"outbox:([\w.:-]+)": r"/outbox/\1"},
)
