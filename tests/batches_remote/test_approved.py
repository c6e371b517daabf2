"""Cancelling and retrying a remote batch of many items needs a second operator, like any other large action."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from redrive import App
from redrive.batches import BatchService
from redrive.batches.batch import BatchConflict
from redrive.batches.names import BatchState
from redrive.batches.remote.application import RemoteBatches
from redrive.batches.settings import BatchSettings
from redrive.errors import InvalidTransition, NotAllowed
from redrive.kernel.audit import AuditFilter
from redrive.kernel.records import Record
from redrive.ledger.accounts import TooLittle
from redrive.ops import approvals
from redrive.ops.access import Caller, Role
from redrive.settings import load_settings
from tests.batches_remote.conftest import ANN, QUICK, Scripted, made, money, opened, rich, settled
from tests.batches_remote.test_faces import client_of
from tests.console.conftest import console, page, text_of

BOB = Caller("bob", Role.OPERATOR)
BROKEN = {"fail": "model", "once": True}


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    own = load_settings(url=store_url, log_format="off", approvals_above=2).holding(BatchSettings(**QUICK))
    async with opened(App(settings=own)) as made:
        yield made


async def both(app: App, caller: Caller = ANN) -> BatchService:
    return (await app.operator(caller)).of(BatchService)


async def said(app: App) -> list[tuple[str, str]]:
    rows = await (await app.store()).audit(AuditFilter(), limit=50)
    return [(row.action, row.actor) for row in rows if row.action.startswith(("APPROVAL", "BATCH_RETRY", "BATCH_CANC"))]


async def approve(app: App, record: Record | None, caller: Caller = BOB) -> Record:
    assert record is not None
    return await (await app.operator(caller)).approvals.approve(record.id, "fine")


async def test_a_large_cancel_waits_for_a_second_operator(app: App, provider: Scripted) -> None:
    batch, own = await made(app, [{}] * 3), await both(app)
    assert (await own.cancel(batch.id, dry_run=True)).needs_approval == "3 tasks are more than 2"
    asked = await own.cancel(batch.id, "wrong prices")
    assert asked.approval is not None and asked.batch.state is BatchState.QUEUED
    again = await own.cancel(batch.id, "wrong prices")
    assert again.approval is not None and again.approval.id == asked.approval.id, "asked twice, it is one request"
    with pytest.raises(NotAllowed, match="cannot approve"):
        await approve(app, asked.approval, ANN)
    done = await approve(app, asked.approval)
    assert (done.state, done.decided_by) == (approvals.APPROVED, "bob")
    found = await app.of(RemoteBatches).get(batch.id)
    assert (found.state, found.cancelled_by, found.reason) == (BatchState.CANCELLED, "ann", "wrong prices")
    assert await said(app) == [("BATCH_CANCEL", "ann"), ("APPROVAL_APPROVE", "bob"), ("APPROVAL_REQUEST", "ann")]
    with pytest.raises(InvalidTransition, match="is approved"):
        await approve(app, asked.approval)


async def test_a_large_retry_is_charged_when_it_is_approved(app: App, provider: Scripted) -> None:
    await rich(app, amount=100)
    batch, own = await settled(app, await made(app, [BROKEN] * 3)), await both(app)
    asked = await own.retry_failed(batch.id, "mended")
    assert (asked.matched, asked.charge, await money(app)) == (3, 30, (100, 0, 0))
    await approve(app, asked.approval)
    assert await money(app) == (70, 30, 0)
    assert (await settled(app, batch)).captured == 30
    assert ("BATCH_RETRY_FAILED", "ann") in await said(app)


async def test_what_is_not_possible_any_more_goes_on_waiting(app: App, provider: Scripted) -> None:
    await rich(app, amount=40)
    batch, own = await settled(app, await made(app, [BROKEN] * 3)), await both(app)
    asked = await own.retry_failed(batch.id)
    assert asked.approval is not None
    ledger = app.ledger
    await ledger.adjust("acme", -20, "less", reason="a test")
    with pytest.raises(TooLittle):
        await approve(app, asked.approval)
    pending = await approvals.show(await app.store(), asked.approval.id)
    assert pending.state == approvals.PENDING and await money(app) == (20, 0, 0)
    await ledger.adjust("acme", 20, "more", reason="a test")
    await app.of(RemoteBatches).retry_failed(batch.id)  # by the application, which asks nobody
    with pytest.raises(BatchConflict, match="asked for in round 1"):
        await approve(app, asked.approval)
    rejected = await (await app.operator(BOB)).approvals.reject(asked.approval.id, "done already")
    assert rejected.state == approvals.REJECTED


async def test_nothing_is_asked_for_that_is_not_possible(app: App, provider: Scripted) -> None:
    provider.hold = True
    batch, own = await made(app, [{}] * 5), await both(app)
    await approve(app, (await own.cancel(batch.id)).approval)
    with pytest.raises(BatchConflict):
        await own.cancel(batch.id)
    small = await own.cancel((await made(app, [{}] * 2)).id)
    assert small.approval is None, "so few need nobody else"
    third = await own.cancel((await made(app, [{}])).id)
    assert third.approval is not None, "many small ones are a large one"


async def test_the_same_over_http_and_in_the_console(app: App, provider: Scripted) -> None:
    batch = await made(app, [{}] * 3, name="May")
    async with client_of(app) as client:
        at = f"/api/batches/{batch.id}/cancel"
        dry = (await client.post(at, json={"dryRun": True, "actor": "ann"})).json()
        assert dry["needsApproval"] == "3 tasks are more than 2"
        asked = (await client.post(at, json={"actor": "ann", "reason": "wrong"})).json()
        approval = asked["approval"]
        assert (approval["action"], approval["operationId"], asked["operation"]) == ("batches.cancel", None, None)
        assert approval["title"] == f"cancel 3 items of batch {batch.id}" and approval["page"] == f"/batches/{batch.id}"
        [listed] = (await client.get("/api/approvals")).json()["approvals"]
        assert listed == approval
        async with console(app) as browser:
            shown = text_of(await page(browser, "/approvals"))
            assert f"ann wants to cancel 3 items of batch {batch.id}" in shown
            assert "what was not started is cancelled and its money released" in shown
        done = await client.post(f"/api/approvals/{approval['id']}/approve", json={"actor": "bob"})
        assert (done.status_code, done.json()["state"]) == (200, "approved")
        assert (await client.get(f"/api/batches/{batch.id}")).json()["state"] == "cancelled"
    async with console(app) as browser:
        assert f"cancel 3 items of batch {batch.id}" in text_of(await page(browser, "/approvals"))


async def test_pages_say_beforehand_that_a_second_person_has_to_agree(app: App, provider: Scripted) -> None:
    await rich(app, amount=100)
    broken = await settled(app, await made(app, [BROKEN] * 3))
    large, small = await made(app, [{}] * 3), await made(app, [{}] * 2)
    tasks = await app.batch([{"kind": "SYSTEM_HEALTH_CHECK", "delay": 3600}] * 3)
    async with console(app) as client:
        for batch, words in ((large, "Ask to cancel"), (tasks, "Ask to cancel"), (broken, "Ask to start 3 again")):
            seen = text_of(await page(client, f"/batches/{batch.id}"))
            assert "A second person has to agree: 3 tasks are more than 2." in seen and words in seen
        alone = text_of(await page(client, f"/batches/{small.id}"))
        assert "A second person" not in alone and "Cancel what has not ended" in alone
