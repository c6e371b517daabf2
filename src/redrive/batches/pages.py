"""The pages of batches in the console: how far each is, what its items are failed by, and acting on all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Response

from redrive.batches.batch import Batch, BatchState
from redrive.batches.remote.pages import add_pages
from redrive.batches.service import BatchService
from redrive.console.filters import refuse_unknown
from redrive.errors import InvalidInput
from redrive.feature import Operator, Role, State
from redrive.feature.console import FeaturePages, Item, Section, TheForm, ThePage, fragment, pages_router
from redrive.ops import views
from redrive.ops.inspect import parse_id, parse_states
from redrive.ops.text import counted

router = pages_router("batches")
add_pages(router)
PAGE_SIZE = 50
COUNTED_UP_TO = 100


@router.get("")
async def all_batches(page: ThePage) -> Response:
    refuse_unknown(page, "state", "before")
    state, before = page.query.get("state") or None, page.query.get("before")
    found = await page.operator.of(BatchService).list(state=state, limit=PAGE_SIZE, before=before)
    return await page.render(
        "batches/list.html",
        batches=found,
        state=state,
        states=[one.value for one in BatchState if one is not BatchState.QUEUED],
        before=str(found[-1].id) if len(found) == PAGE_SIZE else None,
    )


@router.get("/{batch}")
async def one_batch(page: ThePage, batch: str) -> Response:
    refuse_unknown(page, "state", "kind", "before")
    own = page.operator.of(BatchService)
    shown = await own.show(batch)
    state, kind, before = (page.query.get(name) or None for name in ("state", "kind", "before"))
    items = await own.items(
        shown.id,
        states=parse_states([state]) if state else (),
        kind=kind,
        limit=PAGE_SIZE,
        before=None if before is None else parse_id(before),
    )
    return await page.render(
        "batches/batch.html",
        **await _progress(page.operator, shown),
        state=state,
        kind=kind,
        states=[one.value for one in State],
        items=[views.task(one, page.operator.sight) for one in items.tasks],
        before=items.next_before,
    )


@router.post("/{batch}")
async def act(page: TheForm, batch: str) -> Response:
    page.operator.insist(Role.OPERATOR)
    own, reason = page.operator.of(BatchService), page.form.text("reason")
    match page.form.text("do"):
        case "cancel":
            begun = await own.cancel(batch, reason)
            told = f"{counted(begun.operation.total)} are being cancelled; nothing more can be added."
        case "retry_failed":
            begun = await own.retry_failed(batch, reason)
            told = f"{counted(begun.operation.total)} are being retried."
        case _:
            raise InvalidInput("there is no such thing to do with a batch")
    if begun.approval is not None:
        told = "It waits for a second person."
    return page.go(page.link(f"/operations/{begun.operation.id}"), told)


async def _progress(operator: Operator, batch: Batch) -> dict[str, Any]:
    """Returns what the live part of a batch's page is made of."""
    failures = await operator.of(BatchService).failures(batch.id) if batch.failed else None
    return {"batch": batch, "failures": failures}


async def unended(operator: Operator) -> int:
    return len(await operator.of(BatchService).unended(COUNTED_UP_TO))


async def sample(operator: Operator) -> Mapping[str, str]:
    found = await operator.of(BatchService).list(limit=PAGE_SIZE)
    now = await _now(operator)
    return {"#batches": fragment("batches/table.html", batches=found, now=now)}


def sample_one(batch: str) -> Any:
    async def sampled(operator: Operator) -> Mapping[str, str]:
        shown = await operator.of(BatchService).show(batch)
        values = await _progress(operator, shown)
        now = await _now(operator)
        return {
            "#progress": fragment("batches/progress.html", **values, now=now),
            "#failures": fragment("batches/failures.html", **values, now=now),
        }

    return sampled


async def _now(operator: Operator) -> Any:
    return await operator.of(BatchService).now()


pages = FeaturePages(
    router,
    Section(
        "See",
        (
            Item("Batches", "/batches", "Tasks that belong together, and how far they are", "batches", "b"),
            Item("Remote batches", "/batches/remote", "Jobs at a provider, and what they cost"),
        ),
    ),
    topics={"batches": lambda _: sample, "batches-one": sample_one},
    number=unended,
)
