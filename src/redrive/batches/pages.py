"""The pages of batches in the console: how far each is, what its items are failed by, and acting on all of them. One at
a provider has its money and its items besides; what is live of a page are its regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Response
from fastapi.responses import StreamingResponse

from redrive.batches.batch import Batch
from redrive.batches.batch_service import BatchService
from redrive.batches.items import FORMS, check_form, item_of_task, results
from redrive.batches.names import BatchState, ItemState
from redrive.batches.remote.actions import CANCEL, CHARGE, MOST_CHARGED, RETRY_FAILED, RemoteBatchActions
from redrive.batches.remote.model import RemoteBatch
from redrive.batches.remote.service import History, Progress, RemoteBatchService
from redrive.batches.remote.wait_reasons import ORDINARY
from redrive.console.filters import refuse_unknown
from redrive.console.live import Sample
from redrive.errors import InvalidInput
from redrive.feature import Operator, Task
from redrive.feature.console import FeaturePages, Item, Panel, Section, ThePage, pages_router, render
from redrive.kernel.classify import FailureType
from redrive.ledger.service import Ledger
from redrive.ledger.views import Account
from redrive.ops import views
from redrive.ops.views import View
from redrive.ops.why import Reason

router = pages_router("batches")
PAGE_SIZE = 50
COUNTED_UP_TO = 100
SORTS = {"": None, "tasks": False, "remote": True}  # what ?items= says, and whether that is at a provider


@router.get("")
async def all_batches(page: ThePage) -> Response:
    names = ("state", "items", "provider", "account", "before")
    refuse_unknown(page, *names)
    given = {name: page.query.get(name) or None for name in names}
    chosen = {name: given[name] for name in ("state", "provider", "account")}
    if (given["items"] or "") not in SORTS:
        raise InvalidInput(f"items are tasks or remote, not {given['items']!r}")
    found = await page.operator.of(BatchService).list(
        **chosen, remote=SORTS[given["items"] or ""], limit=PAGE_SIZE, before=given["before"]
    )
    return await page.render(
        "batches/list.html",
        **chosen,
        batches=found.items,
        items=given["items"],
        filtered=sum(value is not None for name, value in given.items() if name != "before"),
        states=[one.value for one in BatchState],
        before=found.next,
    )


@router.get("/{batch}")
async def one_batch(page: ThePage, batch: str) -> Response:
    own = page.operator.of(BatchService)
    shown = await own.find(batch)
    if shown.remote is not None:
        return await one_remote(page, shown)
    refuse_unknown(page, "state", "kind", "before")
    state, kind, before = (page.query.get(name) or None for name in ("state", "kind", "before"))
    items = await own.tasks(shown.id, states=[state] if state else (), kind=kind, limit=PAGE_SIZE, before=before)
    return await page.render(
        "batches/batch.html",
        **await _progress(page.operator, shown),
        approval=await _second_person(page, shown),
        state=state,
        kind=kind,
        states=[one.value for one in ItemState],
        items=[_item(views.task(one, page.operator.sight)) for one in items.tasks],
        before=items.next_before,
    )


def _item(task: View) -> View:
    """Returns a task as an item: in the states that items of all batches have, in every face."""
    return View({**task, "state": item_of_task(task).state})


@router.get("/{batch}/results")
async def all_results(page: ThePage, batch: str) -> Response:
    """All items as a file, a piece at a time."""
    refuse_unknown(page, "format")
    form = check_form(page.query.get("format", "csv"))
    found = await page.operator.of(BatchService).find(batch)
    headers = {"Content-Disposition": f'attachment; filename="batch-{found.id}.{form}"'}
    lines = results(page.operator.of(BatchService).items, str(found.id), form)
    return StreamingResponse(lines, media_type=FORMS[form], headers=headers)


async def _second_person(page: ThePage, batch: Batch) -> str | None:
    """Returns why a second person has to agree to a cancel; None where nobody has to, or it cannot be cancelled."""
    if batch.state is not BatchState.PROCESSING or batch.asked:
        return None
    return await _needs(page, CANCEL, batch, batch.pending)


async def _progress(operator: Operator, batch: Batch) -> dict[str, Any]:
    """Returns what the live part of a batch's page is made of."""
    own = operator.of(BatchService)
    failures = await own.failures(batch.id) if batch.failed else None
    return {"batch": batch, "failures": failures, "waits_for": await own.waits_for(batch)}


async def unended(operator: Operator) -> int:
    return await operator.of(BatchService).unended(COUNTED_UP_TO)


async def sample(operator: Operator) -> Mapping[str, str]:
    found = await operator.of(BatchService).list(limit=PAGE_SIZE)
    now = await operator.health.now()
    return {"#batches": render("batches/table.html", operator, batches=found.items, filtered=0, now=now)}


def sample_one(batch: str) -> Any:
    async def sampled(operator: Operator) -> Mapping[str, str]:
        values = await _progress(operator, await operator.of(BatchService).find(batch))
        now = await operator.health.now()
        return {
            "#progress": render("batches/progress.html", operator, **values, now=now),
            "#failures": render("batches/failures.html", operator, **values, now=now),
        }

    return sampled


ROWS = 50  # of a page of items
PARTS = {
    "#progress": "batches/remote_progress.html",
    "#money": "batches/remote_money.html",
    "#failures": "batches/remote_failures.html",
}


@dataclass(slots=True, frozen=True)
class Shown:
    """A batch as its page shows it; ``circuit`` is that of its provider while it is open, ``waits_for`` what else keeps
    its items from going on."""

    found: Progress
    history: History | None
    circuit: Any
    waits_for: Sequence[Reason]
    unit: str

    @property
    def seconds_left(self) -> float | None:
        batch, states = self.found.batch, self.found.counts.states
        if self.history is None or batch.settled or self.circuit is not None or self.waits_for:
            return None
        return self.history.seconds_left(states[ItemState.PENDING] + states[ItemState.PROCESSING])


async def shown(operator: Operator, batch: str) -> Shown:
    """Returns what the live parts are made of."""
    own = operator.of(RemoteBatchService)
    found = await own.progress(batch)
    circuits = () if found.batch.settled else await operator.circuits.list()
    down = next((one for one in circuits if one.open and one.name == found.batch.provider), None)
    waits = [one for one in await own.waits_for(batch) if one.code not in ("circuit", *ORDINARY)]
    return Shown(found, await own.history(found.batch), down, waits, operator.of(Ledger).unit)


def sample_remote(batch: str) -> Sample:
    """Samples a batch. One that is settled stays as it is: its items are not counted again until somebody acts."""
    last: Mapping[str, str] = {}
    seen: tuple[int, int] | None = None

    async def sample(operator: Operator) -> Mapping[str, str]:
        nonlocal last, seen
        own = operator.of(RemoteBatchService)
        now = await own.show(batch)
        at = (now.version, await own.unknown(batch)) if now.settled else None
        if at is None or at != seen:
            last = await _regions(operator, batch)
            seen = at
        return last

    return sample


async def _regions(operator: Operator, batch: str) -> Mapping[str, str]:
    made, now = await shown(operator, batch), await operator.health.now()
    one = made.found.batch
    changed = f"{one.state}.{one.round}.{one.cancelled_at is None}"
    return {name: render(part, operator, shown=made, now=now) for name, part in PARTS.items()} | {"changed": changed}


def sample_items(argument: str) -> Sample:
    """Samples a page of items that nobody has filtered: its rows stay in their places, and only say more."""
    batch, _, after = argument.partition(".")
    if not after.isdecimal():
        raise InvalidInput(f"{argument[:60]!r} names no page of items")

    async def sample(operator: Operator) -> Mapping[str, str]:
        items = await operator.of(RemoteBatchService).items(batch, after=int(after), limit=ROWS)
        return {"#items": render("batches/remote_items.html", operator, items=items, now=await operator.health.now())}

    return sample


async def one_remote(page: ThePage, batch: Batch) -> Response:
    refuse_unknown(page, "state", "failureType", "after")
    state, kind = page.query.get("state") or None, page.query.get("failureType") or None
    after = page.query.get("after") or "0"
    if not after.isdecimal():
        raise InvalidInput(f"after is the place of an item, not {after!r}")
    made = await shown(page.operator, str(batch.id))
    items = await page.operator.of(RemoteBatchService).items(
        batch.id, states=[state] if state else (), failure_type=kind, after=int(after), limit=ROWS
    )
    return await page.render(
        "batches/remote_batch.html",
        shown=made,
        payer=await _payer(page.operator, made.found.batch) if page.may_act else None,
        approval=await _second_for_remote(page, batch, made.found),
        charge_approval=await _needs(page, CHARGE, batch, min(made.found.uncharged, MOST_CHARGED)),
        state=state,
        states=list(ItemState),
        kind=kind,
        kinds=[one.value for one in FailureType],
        items=items,
        origin=int(after),
        after=items[-1].n if len(items) == ROWS else None,
    )


async def _payer(operator: Operator, batch: RemoteBatch) -> Account | None:
    return None if batch.account is None else await operator.of(Ledger).show(batch.account)


async def _second_for_remote(page: ThePage, batch: Batch, found: Progress) -> str | None:
    """Returns why a second person has to agree to what the page offers; None where nobody has to."""
    if found.batch.settled:
        return await _needs(page, RETRY_FAILED, batch, found.retry.matched)
    return await _needs(page, CANCEL, batch, batch.pending)


async def _needs(page: ThePage, action: str, batch: Batch, items: int) -> str | None:
    return await page.operator.of(RemoteBatchActions).needs(action, batch, items) if page.may_act else None


async def panel(operator: Operator, task: Task) -> Panel | None:
    """Returns what the page of an item's task says about its batch."""
    if "ordinal" not in (task.facts or {}):
        return None
    own = operator.of(RemoteBatchService)
    values = {"batch": await own.show(task.facts["batch"]), "item": await own.item_of_task(task.id)}
    return Panel("Item of a batch", "batches/item_panel.html", {**values, "unit": operator.of(Ledger).unit})


pages = FeaturePages(
    router,
    Section(
        "See",
        (Item("Batches", "/batches", "Work that belongs together: how far it is, and what it costs", "batches", "b"),),
    ),
    panel=panel,
    services={"batches": BatchService},
    topics={
        "batches": lambda _: sample,
        "batches-one": sample_one,
        "batches-remote": sample_remote,
        "batches-items": sample_items,
    },
    number=unended,
    references={r"batch[:-]([0-9a-f-]{36})(-\d+)?": r"/batches/\1"},  # in the ledger; an event of webhooks
)
