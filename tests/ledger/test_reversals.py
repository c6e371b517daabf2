"""Credits and adjustments are undone once, by a movement of their own; everything else is put right in another way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redrive import App
from redrive.errors import Conflict
from redrive.feature import Commit, Posting
from redrive.kernel.audit import AuditFilter
from redrive.ledger.accounts import TooLittle
from redrive.ledger.reversals import AlreadyReversed, MovementUnknown, NotReversible
from redrive.ledger.service import Ledger
from redrive.ops.access import Caller, Role
from tests.api.conftest import served
from tests.cli.conftest import here, redrive  # noqa: F401 - fixtures
from tests.ledger.conftest import BOTH_STORES

pytestmark = pytest.mark.anyio


async def reversals(app: App, role: Role = Role.ADMIN) -> Ledger:
    return (await app.operator(Caller("ann", role))).of(Ledger)


@pytest.fixture
async def own(app: App) -> Ledger:
    await app.ledger.open("acme")
    await app.ledger.credit("acme", 100, "invoice-1", reason="paid")
    return await reversals(app)


@BOTH_STORES
async def test_a_credit_is_undone_once(app: App, own: Ledger) -> None:
    done = await own.reverse("credit:invoice-1", "wrong customer")
    assert (done.available, done.approval) == (0, None)
    last, first = (await own.statement("acme")).items
    assert (last.kind, last.available, last.reference, last.reason) == (
        "reverse",
        -100,
        "credit:invoice-1",
        "wrong customer",
    )
    assert (last.movement, first.movement) == ("reverse:credit:invoice-1", "credit:invoice-1")
    [line] = (await own.statement("acme", reference="credit:invoice-1")).items
    assert line.movement == last.movement
    await app.ledger.credit("acme", 500, "invoice-2", reason="paid")
    with pytest.raises(AlreadyReversed, match=r"reversed already, at 2\d\d\d-"):
        await own.reverse("credit:invoice-1", "wrong customer")
    assert (await own.show("acme")).available == 500
    rows = await (await app.store()).audit(AuditFilter(action="LEDGER_REVERSED"), limit=10)
    assert [(row.actor, row.reason, row.after) for row in rows] == [
        ("ann", "wrong customer", {"movement": "credit:invoice-1", "change": -100})
    ]
    assert (await own.verify()).ok


async def test_an_adjustment_is_undone_in_both_directions(app: App, own: Ledger) -> None:
    await app.ledger.adjust("acme", -30, "typo", reason="counted twice")
    await app.ledger.adjust("acme", 7, "gift", reason="a gift")
    assert (await own.reverse("adjust:typo", "it was right")).available == 107
    assert (await own.reverse("adjust:gift", "not for them")).available == 100
    assert (await own.verify()).ok


@BOTH_STORES
async def test_of_two_at_the_same_moment_one_lands(own: Ledger) -> None:
    await own.credit("acme", 1000, "more")
    asked = [own.reverse("credit:invoice-1", f"by {name}") for name in ("ann", "bob", "eve")]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(one, AlreadyReversed) for one in found) == 2, found
    assert (await own.show("acme")).available == 1000
    assert (await own.verify()).ok


@BOTH_STORES
async def test_one_that_overtakes_the_look_is_refused_by_the_books(
    app: App, own: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own.credit("acme", 1000, "more")
    looked = await own._reversible("credit:invoice-1")
    await own.reverse("credit:invoice-1", "first")

    async def as_before(movement: str) -> Any:
        return looked

    monkeypatch.setattr(own, "_reversible", as_before)
    with pytest.raises(AlreadyReversed):
        await own.reverse("credit:invoice-1", "second")
    assert (await own.show("acme")).available == 1000
    assert len(await (await app.store()).audit(AuditFilter(action="LEDGER_REVERSED"), limit=10)) == 1


@pytest.mark.parametrize(
    ("frozen", "captured", "hint"),
    [(30, 0, "the rest is frozen for"), (30, 30, "adjust acme -70"), (100, 100, "nothing to take back")],
)
async def test_what_was_spent_is_not_taken_back(app: App, own: Ledger, frozen: int, captured: int, hint: str) -> None:
    await app.ledger.freeze("acme", frozen, "work:1", "k")
    if captured:
        await app.ledger.settle("acme", "work:1", "k", captured=captured)
    with pytest.raises(TooLittle, match="this takes 100 back, and nothing was moved") as refused:
        await own.reverse("credit:invoice-1", "wrong")
    assert hint in str(refused.value.hint)
    assert (await own.show("acme")).available == 100 - frozen
    assert (await own.verify()).ok


async def test_other_movements_say_what_to_do_instead(app: App, own: Ledger) -> None:
    await app.ledger.freeze("acme", 30, "work:1", "one")
    await app.ledger.settle("acme", "work:1", "one", captured=20)
    await app.ledger.settle("acme", "work:1", "two", released=10)
    await app.ledger.credit("acme", 5, "five", reason="paid")
    await own.reverse("credit:five", "wrong")
    entries = (("account:acme", -1), ("account:other", 1))
    await (await app.store()).apply(Commit(postings=[Posting("credit:hand", entries)]))
    for movement, hint in (
        ("freeze:one", "redrive ledger release acme --for work:1"),
        ("settle:one", "redrive ledger adjust acme +20"),
        ("settle:two", "redrive ledger freeze acme 10 --for work:1"),
        ("reverse:credit:five", "redrive ledger adjust acme +5"),
        ("credit:hand", "redrive ledger adjust"),
    ):
        with pytest.raises(NotReversible, match="only credits and adjustments are reversed") as refused:
            await own.reverse(movement, "wrong")
        assert hint in str(refused.value.hint), movement
    for unknown in ("credit:nobody", "invoice-1", ""):
        with pytest.raises(MovementUnknown, match="no movement"):
            await own.reverse(unknown, "wrong")


async def test_the_longest_key(app: App, own: Ledger) -> None:
    key = "k" * (512 - len("credit:"))
    await app.ledger.credit("acme", 5, key, reason="paid")
    assert (await own.reverse(f"credit:{key}", "wrong")).available == 100
    with pytest.raises(Conflict):
        await own.reverse(f"credit:{key}", "wrong")


async def test_over_http(app: App, own: Ledger) -> None:
    async with served(app) as client:
        body = {"movement": "credit:invoice-1", "reason": "wrong customer"}
        done = await client.post("/api/ledger/reverse", json=body)
        assert (done.status_code, done.json()["available"], done.json()["approval"]) == (200, 0, None)
        again = await client.post("/api/ledger/reverse", json=body)
        assert (again.status_code, again.json()["code"]) == (409, "LEDGER_ALREADY_REVERSED")
        missing = await client.post("/api/ledger/reverse", json={**body, "movement": "credit:x"})
        assert (missing.status_code, missing.json()["code"]) == (404, "LEDGER_MOVEMENT_UNKNOWN")
        lines = (await client.get("/api/ledger/accounts/acme/statement")).json()["items"]
        assert [one["movement"] for one in lines] == ["reverse:credit:invoice-1", "credit:invoice-1"]
