"""The pages of remote batches in the console: how far each is, its money, its items, and acting on it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from redrive.batches.batch import BatchState
from redrive.batches.remote.model import ITEM_STATES, RemoteBatch
from redrive.batches.remote.service import RemoteBatchService
from redrive.console.filters import refuse_unknown
from redrive.errors import InvalidInput
from redrive.feature import Role
from redrive.feature.console import TheForm, ThePage
from redrive.kernel.classify import FailureType

PAGE_SIZE = 50


def add_pages(router: APIRouter) -> None:
    """Adds these pages to those of batches; before them, since "remote" is no id of a batch."""
    router.get("/remote")(all_remote)
    router.get("/remote/{batch}")(one_remote)
    router.post("/remote/{batch}")(act)


async def all_remote(page: ThePage) -> Response:
    refuse_unknown(page, "state", "before")
    state, before = page.query.get("state") or None, page.query.get("before")
    found = await page.operator.of(RemoteBatchService).list(state=state, limit=PAGE_SIZE, before=before)
    return await page.render(
        "batches/remote_list.html",
        batches=found,
        state=state,
        states=[one.value for one in BatchState],
        before=str(found[-1].id) if len(found) == PAGE_SIZE else None,
    )


async def one_remote(page: ThePage, batch: str) -> Response:
    refuse_unknown(page, "state", "failureType", "after")
    own = page.operator.of(RemoteBatchService)
    found = await own.progress(batch)
    state, kind = page.query.get("state") or None, page.query.get("failureType") or None
    after = page.query.get("after") or "0"
    if not after.isdecimal():
        raise InvalidInput(f"after is the place of an item, not {after!r}")
    items = await own.items(batch, state=state, failure_type=kind, after=int(after), limit=PAGE_SIZE)
    return await page.render(
        "batches/remote_batch.html",
        found=found,
        batch=found.batch,
        one=_picture(found.batch, found.counts.states),
        state=state,
        states=list(ITEM_STATES),
        kind=kind,
        kinds=[one.value for one in FailureType],
        items=items,
        after=items[-1].n if len(items) == PAGE_SIZE else None,
    )


async def act(page: TheForm, batch: str) -> Response:
    page.operator.insist(Role.OPERATOR)
    own, reason = page.operator.of(RemoteBatchService), page.form.text("reason")
    match page.form.text("do"):
        case "cancel":
            done = await own.cancel(batch, reason)
            told = "It is cancelled." if done.settled else "It is cancelled when what runs has ended."
        case "retry_failed":
            done = await own.retry_failed(batch, reason)
            told = f"{done.in_round} items are started again, as a new charge."
        case _:
            raise InvalidInput("there is no such thing to do with a batch")
    return page.go(page.link(f"/batches/remote/{done.id}"), told)


def _picture(batch: RemoteBatch, states: Any) -> dict[str, int]:
    """Returns what the bar of a batch is drawn from."""
    waits = {"pending": states["pending"] + states["processing"], "total": batch.items}
    return {name: states[name] for name in ("completed", "failed", "cancelled")} | waits
