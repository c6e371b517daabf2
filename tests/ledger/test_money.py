"""Money that is frozen, captured, released and adjusted; statements, the past, and the proof."""

from __future__ import annotations

import csv
import io
from datetime import timedelta

import pytest

from redrive import App, Context
from redrive.errors import InvalidInput, RedriveError
from redrive.ledger import statement
from redrive.ledger.accounts import AccountUnknown, NotFrozen, TooLittle
from redrive.ops.access import Role
from tests.ledger.conftest import BOTH_STORES, ledger_of, run_sql

pytestmark = pytest.mark.anyio


async def an_account(app: App, amount: int = 100) -> None:
    await app.ledger.open("acme")
    await app.ledger.credit("acme", amount, "first", reason="invoice")


async def sides(app: App) -> tuple[int, int]:
    found = await app.ledger.balance("acme")
    return found["available"], found["frozen"]


@BOTH_STORES
async def test_from_freeze_to_settlement(app: App) -> None:
    await an_account(app)
    for _ in range(2):  # what is sent again lands once
        await app.ledger.freeze("acme", 30, "batch:1", "batch:1:0")
        assert await sides(app) == (70, 30)
    for _ in range(2):
        await app.ledger.settle("acme", "batch:1", "batch:1:0", captured=20, released=10)
        assert await sides(app) == (80, 0)
    ledger = await ledger_of(app)
    assert (await ledger.freezes("acme")).items == []
    lines = (await ledger.statement("acme")).items
    assert [(one.kind, one.available, one.frozen, one.available_after, one.frozen_after) for one in lines] == [
        ("settle", 10, -30, 80, 0),
        ("freeze", -30, 30, 70, 30),
        ("credit", 100, 0, 100, 0),
    ]
    assert [one.reference for one in lines] == ["batch:1", "batch:1", None]
    assert (await ledger.verify()).ok


async def test_too_little_freezes_nothing(app: App) -> None:
    await an_account(app, 10)
    await app.ledger.freeze("acme", 2, "batch:0", "k0")
    with pytest.raises(
        TooLittle, match="account acme has 8 to spend, and 2 more that are frozen; this needs 11"
    ) as said:
        await app.ledger.freeze("acme", 11, "batch:1", "k")
    assert "redrive ledger credit acme 3 " in str(said.value.hint)
    await app.ledger.settle("acme", "batch:0", "k0", released=2)
    assert await sides(app) == (10, 0)
    assert (await (await ledger_of(app)).freezes("acme")).items == []


@BOTH_STORES
async def test_no_more_is_settled_than_was_frozen_for_it(app: App) -> None:
    """Also where the account has more frozen for something else."""
    await an_account(app)
    await app.ledger.freeze("acme", 10, "batch:1", "1")
    await app.ledger.freeze("acme", 50, "batch:2", "2")
    with pytest.raises(RedriveError):
        await app.ledger.settle("acme", "batch:1", "1", captured=11)
    await app.ledger.settle("acme", "batch:1", "1", captured=10)
    with pytest.raises(RedriveError):
        await app.ledger.settle("acme", "batch:1", "again", captured=10)
    assert await sides(app) == (40, 50)
    assert [(one.reference, one.amount) for one in (await (await ledger_of(app)).freezes("acme")).items] == [
        ("batch:2", 50)
    ]


async def test_by_hand(app: App) -> None:
    await an_account(app)
    ledger = await ledger_of(app)
    assert (await ledger.freeze("acme", 40, "case:1", "asked")).frozen == 40
    assert (await ledger.release("acme", "case:1", "a part", amount=10)).available == 70
    with pytest.raises(NotFrozen, match="30 of acme are frozen for case:1, not 31"):
        await ledger.capture("acme", "case:1", "too much", amount=31)
    captured = await ledger.capture("acme", "case:1", "the rest")
    assert (captured.available, captured.frozen) == (70, 0)
    with pytest.raises(NotFrozen, match="nothing of acme is frozen for 'case:1'"):
        await ledger.release("acme", "case:1", "again")
    assert (await ledger.adjust("acme", -70, "closed")).available == 0
    with pytest.raises(TooLittle, match="account acme has 0 to spend; this needs 1"):
        await ledger.adjust("acme", -1, "below")
    actions = [row.action for row in await audit(app)]
    assert actions == [
        "LEDGER_ADJUSTED",
        "LEDGER_CAPTURED",
        "LEDGER_RELEASED",
        "LEDGER_FROZEN",
        "LEDGER_CREDITED",
    ]


async def test_what_is_asked_again_is_audited_once(app: App) -> None:
    await an_account(app)
    ledger = await ledger_of(app)
    for _ in range(2):
        await app.ledger.credit("acme", 5, "gift", reason="a gift")
        await app.ledger.adjust("acme", -5, "sorry", reason="taken back")
        await ledger.credit("acme", 7, "another", key="by hand")
    assert [row.action for row in await audit(app)] == [
        "LEDGER_CREDITED",
        "LEDGER_ADJUSTED",
        "LEDGER_CREDITED",
        "LEDGER_CREDITED",  # of the account itself
    ]


@BOTH_STORES
async def test_in_ones_own_transaction_as_well(app: App) -> None:
    await an_account(app)
    before = len(await audit(app))

    @app.task("GIVE")
    async def give(ctx: Context) -> None:
        async with ctx.transaction() as own:
            for _ in range(2):
                await app.ledger.credit("acme", 5, "gift", reason="a gift", connection=own)

    await app.enqueue("GIVE")
    await app.worker(stop_when_empty=True).run()
    assert (await sides(app), len(await audit(app))) == ((105, 0), before + 1)


async def audit(app: App) -> list[object]:
    from redrive.kernel.audit import AuditFilter

    return list(await (await app.store()).audit(AuditFilter(), limit=50))


async def test_a_reason_is_needed(app: App) -> None:
    await an_account(app)
    with pytest.raises(InvalidInput, match="say why"):
        await (await ledger_of(app)).credit("acme", 1, "  ")


async def test_an_account_that_nobody_opened_is_told_how(app: App) -> None:
    for act in (
        app.ledger.credit("nobody", 1, "k", reason="r"),
        app.ledger.freeze("nobody", 1, "r", "k"),
        app.ledger.balance("nobody"),
    ):
        with pytest.raises(AccountUnknown, match="nobody") as refused:
            await act
        assert refused.value.hint == "open it: redrive ledger open nobody"


@BOTH_STORES
async def test_what_it_had_then(app: App) -> None:
    store = await app.store()
    before = await store.now()
    await an_account(app)
    between = (await (await ledger_of(app)).statement("acme")).items[0].at
    await app.ledger.freeze("acme", 30, "batch:1", "1")
    ledger = await ledger_of(app)
    assert await app.ledger.balance("acme", at=before - timedelta(hours=1)) == {"available": 0, "frozen": 0}
    assert await app.ledger.balance("acme", at=between) == {"available": 100, "frozen": 0}
    assert await app.ledger.balance("acme", at=await store.now()) == {"available": 70, "frozen": 30}
    assert (await ledger.show("acme", "1h")).available == 0
    with pytest.raises(InvalidInput, match="no time"):
        await ledger.show("acme", "yesterday")


@BOTH_STORES
async def test_a_statement_in_pages_is_that_of_one_page(app: App) -> None:
    await an_account(app)
    for n in range(7):
        await app.ledger.freeze("acme", 5, f"batch:{n}", f"f{n}")
        await app.ledger.settle("acme", f"batch:{n}", f"s{n}", captured=2, released=3)
    ledger = await ledger_of(app)
    whole = (await ledger.statement("acme", limit=100)).items
    found, before = [], None
    while True:
        page = await ledger.statement("acme", before, limit=4)
        found += page.items
        await app.ledger.credit("acme", 1, f"later-{len(found)}", reason="meanwhile")
        before = page.next
        if before is None:
            break
    assert found == whole and len(whole) == 15
    assert whole[0].available_after == 100 - 7 * 2
    with pytest.raises(InvalidInput, match="no place"):
        await ledger.statement("acme", "junk")


async def test_a_statement_as_csv(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement, "PIECE", 2)
    await an_account(app)
    await app.ledger.credit("acme", 5, "evil", reason="=cmd|' /C calc'!A0")
    for n in range(5):
        await app.ledger.freeze("acme", 5, f"batch:{n}", f"f{n}")
    ledger = await ledger_of(app)
    text = "".join([line async for line in await ledger.export("acme")])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["available_after"] for row in rows] == ["100", "105", "100", "95", "90", "85", "80"]
    assert rows[1]["reason"].startswith("'=cmd")
    assert rows[2]["available"] == "-5", "a number stays one"
    assert "".join([line async for line in await ledger.export("acme", since="0s")]).count("\r\n") >= 1
    later = "".join([line async for line in await ledger.export("acme", until="1h")])
    assert later.count("\r\n") == 1, "the head alone"


BROKEN = {
    "posting": "update {entry} set amount = amount + 1 where account = 'system:credit'",
    "account": "update {account} set balance = balance + 1 where name = 'account:acme'",
    "empty": "delete from {entry} where posting = 'credit:first'",
    "freeze": "update {freeze} set amount = amount + 1",
}


@BOTH_STORES
@pytest.mark.parametrize("kind", BROKEN)
async def test_books_that_somebody_changed_are_found_out(app: App, kind: str) -> None:
    await an_account(app)
    await app.ledger.freeze("acme", 30, "batch:1", "1")
    ledger = await ledger_of(app)
    assert (await ledger.verify()).ok
    await run_sql(app, BROKEN[kind])
    verdict = await ledger.verify()
    assert not verdict.ok
    found = {(one.what, one.name) for one in verdict.problems}
    expected = {
        "posting": ("posting", "credit:first"),
        "account": ("account", "account:acme"),
        "empty": ("posting", "credit:first"),
        "freeze": ("freeze", "frozen:acme"),
    }
    assert expected[kind] in found


@BOTH_STORES
async def test_money_at_risk_until_its_work_moves(app: App) -> None:
    await an_account(app)
    await app.ledger.freeze("acme", 30, "batch:1", "1")
    ledger = await ledger_of(app)
    risk = await ledger.at_risk()
    assert (risk.frozen, risk.at_risk, risk.items) == (30, 0, [])
    await run_sql(app, "update {freeze} set moved_at = {old}")
    risk = await ledger.at_risk()
    assert (risk.frozen, risk.at_risk) == (30, 30)
    assert [(one.account, one.reference, one.amount) for one in risk.items] == [("acme", "batch:1", 30)]
    findings = [one for one in await (await operator(app)).health.examine() if one.code == "ledger_at_risk"]
    assert len(findings) == 1 and "batch:1" in findings[0].text
    await app.ledger.moved("batch:1", "batch:2")
    risk = await ledger.at_risk()
    assert (risk.frozen, risk.at_risk) == (30, 0)


async def operator(app: App):  # type: ignore[no-untyped-def]
    from redrive.ops.access import Caller

    return await app.operator(Caller("ann", Role.ADMIN))


async def test_viewers_see_no_words_of_movements(app: App) -> None:
    await an_account(app)
    await app.ledger.credit("acme", 5, "for-zoe", reason="Zoë complained")
    await app.ledger.freeze("acme", 5, "batch:1", "key-of-zoe")
    viewer, operator = await ledger_of(app, Role.VIEWER), await ledger_of(app, Role.OPERATOR)
    for own, told in ((viewer, False), (operator, True)):
        pages = [await own.statement("acme"), await own.statement("acme", reference="batch:1")]
        text = "".join([line async for line in await own.export("acme")])
        assert all(("key-of-zoe" in repr(page.items)) is told for page in pages)
        assert all((word in text) is told for word in ("Zoë complained", "for-zoe", "key-of-zoe"))
        assert pages[0].items[0].kind == "freeze" and "batch:1" in text


@BOTH_STORES
async def test_movements_for_one_thing(app: App) -> None:
    await an_account(app)
    await app.ledger.freeze("acme", 30, "batch:1", "one")
    await app.ledger.freeze("acme", 5, "batch:2", "two")
    await app.ledger.settle("acme", "batch:1", "one", captured=20, released=10)
    ledger = await ledger_of(app, Role.VIEWER)
    found = await ledger.statement("acme", reference="batch:1")
    assert [(one.kind, one.available, one.frozen) for one in found.items] == [("settle", 10, -30), ("freeze", -30, 30)]
    assert (await ledger.statement("acme", reference="batch:3")).items == []
