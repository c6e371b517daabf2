"""Large credits and adjustments need a second person: asked for, approved, carried out, each in the audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from redrive import App
from redrive.api.app import make_api
from redrive.errors import NotAllowed
from redrive.kernel.audit import AuditFilter
from redrive.kernel.commit import Commit
from redrive.kernel.records import Record
from redrive.ledger import movements
from redrive.ledger.accounts import TooLittle
from redrive.ledger.reversals import AlreadyReversed, find_movement
from redrive.ledger.service import Ledger
from redrive.ledger.settings import LedgerSettings
from redrive.ops import approvals
from redrive.ops.access import Caller, Role
from redrive.settings import load_settings
from tests.console.conftest import console, done, page, text_of

pytestmark = pytest.mark.anyio
ANN, BOB = Caller("ann", Role.ADMIN), Caller("bob", Role.ADMIN)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    url = f"sqlite:///{tmp_path}/redrive.db"
    own = load_settings(url=url, log_format="off").holding(LedgerSettings(approvals_above=100))
    made = App(settings=own)
    await made.migrate()
    await made.ledger.open("acme")
    yield made
    await made.close()


async def ledger(app: App, caller: Caller = ANN) -> Ledger:
    return (await app.operator(caller)).of(Ledger)


async def approve(app: App, record: Record | None, caller: Caller = BOB) -> Record:
    assert record is not None
    return await (await app.operator(caller)).approvals.approve(record.id, "checked")


async def test_a_large_adjustment_waits_for_a_second_person(app: App) -> None:
    own = await ledger(app)
    assert (await own.adjust("acme", 100, "a gift")).available == 100
    asked = await own.adjust("acme", 5000, "booked twice", key="k1")
    assert asked.approval is not None and asked.available == 100
    assert asked.approval.body["needed"] == "5,000 credits are more than 100"
    again = await own.adjust("acme", 5000, "booked twice", key="k1")
    assert again.approval is not None and again.approval.id == asked.approval.id
    for caller, why in ((ANN, "cannot approve"), (Caller("olga", Role.OPERATOR), "needs admin")):
        with pytest.raises(NotAllowed, match=why):
            await approve(app, asked.approval, caller)
    assert (await own.show("acme")).available == 100
    assert (await approve(app, asked.approval)).state == approvals.APPROVED
    assert (await own.show("acme")).available == 5100
    rows = (await (await app.store()).audit(AuditFilter(), limit=50))[:3]
    assert [(row.action, row.actor) for row in rows] == [
        ("LEDGER_ADJUSTED", "ann"),
        ("APPROVAL_APPROVE", "bob"),
        ("APPROVAL_REQUEST", "ann"),
    ]
    [line] = [one for one in (await own.statement("acme")).items if one.reason == "booked twice"]
    assert line.available == 5000
    assert (await own.verify()).ok


async def test_many_small_ones_are_a_large_one(app: App) -> None:
    own = await ledger(app)
    assert (await own.adjust("acme", 60, "one")).approval is None
    second = await own.adjust("acme", -50, "two")
    assert second.approval is not None
    assert second.approval.body["needed"] == "50 credits and the 60 of ann within 24 hours are more than 100"
    assert (await (await ledger(app, BOB)).adjust("acme", -50, "two")).approval is None


async def test_what_the_books_refuse_goes_on_waiting(app: App) -> None:
    own = await ledger(app)
    asked = await own.adjust("acme", -500, "taken back")
    with pytest.raises(TooLittle):
        await approve(app, asked.approval)
    assert asked.approval is not None
    assert (await approvals.show(await app.store(), asked.approval.id)).state == approvals.PENDING
    await app.ledger.credit("acme", 500, "pay", reason="they paid")
    await approve(app, asked.approval)
    assert (await own.show("acme")).available == 0


async def test_much_money_is_brought_by_two(app: App) -> None:
    """In one credit or in many, together with what the same person adjusts; the same one again counts once."""
    olga, otto = Caller("olga", Role.OPERATOR), Caller("otto", Role.OPERATOR)
    own = await ledger(app, olga)
    for _ in range(3):
        assert (await own.credit("acme", 60, "invoice 1", "k1")).available == 60
    asked = await own.credit("acme", 50, "invoice 2", "k2")
    assert asked.approval is not None and asked.available == 60
    assert asked.approval.body["needed"] == "50 credits and the 60 of olga within 24 hours are more than 100"
    assert asked.approval.body["title"] == "credit acme by +50 credits"
    assert (await (await ledger(app, Caller("olga", Role.ADMIN))).adjust("acme", 50, "gift")).approval is not None
    with pytest.raises(NotAllowed, match="cannot approve"):
        await approve(app, asked.approval, olga)
    await approve(app, asked.approval, otto)
    assert (await own.credit("acme", 50, "invoice 2", "k2")).approval is None, "it is in the books"
    assert (await own.show("acme")).available == 110
    rows = await (await app.store()).audit(AuditFilter(action="LEDGER_CREDITED"), limit=5)
    assert [(row.actor, row.after["amount"]) for row in rows] == [("olga", 50), ("olga", 60)]
    await app.ledger.credit("acme", 10**15, "k3", reason="the application's own code asks nobody")
    assert (await own.verify()).ok


async def test_by_default_a_million_and_with_approvals_off_nobody_is_asked() -> None:
    for given, waits in (({"approvals": "off"}, False), ({}, True)):
        made = App(settings=load_settings(url="sqlite:///:memory:", log_format="off", **given))
        await made.migrate()
        await made.ledger.open("acme")
        own = await ledger(made)
        assert (await own.credit("acme", 10**6, "much")).approval is None
        for asked in (await own.credit("acme", 1, "more"), await own.adjust("acme", 10**9, "much")):
            assert (asked.approval is not None) is waits
        await made.close()


async def test_over_http_and_in_the_console(app: App) -> None:
    transport = httpx.ASGITransport(app=make_api(app, None, open_door=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        at = "/api/ledger/accounts/acme/adjust"
        small = await client.post(at, json={"change": 5, "reason": "r"})
        assert (small.status_code, small.json()["available"], small.json()["approval"]) == (200, 5, None)
        brought = await client.post("/api/ledger/accounts/acme/credit", json={"amount": 500, "reason": "r"})
        assert (brought.status_code, brought.json()["approval"]["arguments"]["change"]) == (202, 500)
        large = await client.post(at, json={"change": 500, "reason": "r"})
        assert (large.status_code, large.json()["available"]) == (202, 5)
        approval = large.json()["approval"]
        assert (approval["title"], approval["arguments"]["change"]) == ("adjust acme by +500 credits", 500)
        assert (await client.post(f"/api/approvals/{approval['id']}/approve", json={"actor": "bob"})).status_code == 200
        assert (await client.get("/api/ledger/accounts/acme")).json()["available"] == 505
    async with console(app) as browser:
        form = {"name": "acme", "change": "-400", "reason": "wrong", "once": "x1"}
        assert "It waits for a second person" in text_of(await done(browser, "/act/ledger.adjust", form))
        form = {"name": "acme", "amount": "400", "reason": "paid", "once": "x2"}
        assert "It waits for a second person" in text_of(await done(browser, "/act/ledger.credit", form))
        shown = text_of(await page(browser, "/approvals"))
        assert "wants to adjust acme by -400 credits" in shown and "account acme loses 400 credits" in shown


async def test_a_large_reversal_waits_for_a_second_person(app: App) -> None:
    await app.ledger.credit("acme", 5000, "k1", reason="paid")
    own = (await app.operator(ANN)).of(Ledger)
    asked = await own.reverse("credit:k1", "wrong customer")
    assert asked.approval is not None and asked.available == 5000
    assert asked.approval.body["needed"] == "5,000 credits are more than 100"
    assert (await approve(app, asked.approval)).state == approvals.APPROVED
    assert (await own.show("acme")).available == 0
    [row] = await (await app.store()).audit(AuditFilter(action="LEDGER_REVERSED"), limit=5)
    assert (row.actor, row.reason) == ("ann", "wrong customer")
    with pytest.raises(AlreadyReversed):
        await own.reverse("credit:k1", "wrong customer")
    assert (await own.verify()).ok


async def test_a_reversal_that_was_overtaken_goes_on_waiting(app: App) -> None:
    await app.ledger.credit("acme", 150, "k1", reason="paid")
    own = (await app.operator(ANN)).of(Ledger)
    asked = await own.reverse("credit:k1", "wrong customer")
    store = await app.store()
    found = await find_movement(store, "credit:k1")
    moved = movements.reverse("acme", "credit:k1", found.entries, reason="by the application")
    await store.apply(Commit(postings=moved.postings, rows=moved.rows))
    with pytest.raises(AlreadyReversed):
        await approve(app, asked.approval)
    assert asked.approval is not None
    assert (await approvals.show(store, asked.approval.id)).state == approvals.PENDING
    assert (await own.show("acme")).available == 0
