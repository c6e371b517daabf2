"""Accounts: opened, listed, shown and credited, by whom who may."""

from __future__ import annotations

import pytest

from redrive import App
from redrive.errors import InvalidInput
from redrive.ledger.accounts import AccountExists, AccountUnknown
from redrive.ledger.service import Ledger
from redrive.ops.access import Role
from redrive.ops.operator.declared import declared_by
from tests.ledger.conftest import BOTH_STORES, ledger_of

pytestmark = pytest.mark.anyio


async def test_one_from_its_opening_to_its_first_money(app: App) -> None:
    ledger = await ledger_of(app)
    opened = await ledger.open("acme", "Acme Ltd.")
    assert (opened.name, opened.label, opened.available, opened.frozen) == ("acme", "Acme Ltd.", 0, 0)
    assert (await ledger.credit("acme", 100, "invoice 1", "k1")).available == 100
    assert (await ledger.credit("acme", 100, "invoice 1", "k1")).available == 100, "once by its key"


@BOTH_STORES
async def test_listed_by_name_in_pages(app: App) -> None:
    ledger = await ledger_of(app)
    for name in ("b", "c", "a", "Ab"):
        await ledger.open(name)
    assert [one.name for one in (await ledger.accounts()).items] == ["Ab", "a", "b", "c"]
    assert [one.name for one in (await ledger.accounts(limit=2)).items] == ["Ab", "a"]
    assert [one.name for one in (await ledger.accounts(after="a")).items] == ["b", "c"]
    assert [one.name for one in (await ledger.accounts(search="B")).items] == ["Ab", "b"]


async def test_one_that_is_open_is_not_opened_again(app: App) -> None:
    ledger = await ledger_of(app)
    await ledger.open("acme", "first")
    with pytest.raises(AccountExists):
        await ledger.open("acme", "second")
    assert (await ledger.show("acme")).label == "first"


async def test_one_that_is_not_there(app: App) -> None:
    ledger = await ledger_of(app)
    for asked in (ledger.show("nobody"), ledger.freezes("nobody"), ledger.credit("nobody", 1, "why")):
        with pytest.raises(AccountUnknown) as refused:
            await asked
        assert refused.value.hint == "open it: redrive ledger open nobody"


@BOTH_STORES
@pytest.mark.parametrize("amount", [0, -1, 1.5, True, 2**62])
async def test_amounts_are_whole_and_above_zero(app: App, amount: int) -> None:
    ledger = await ledger_of(app)
    await ledger.open("acme")
    with pytest.raises(InvalidInput):
        await ledger.credit("acme", amount, "why")


def test_who_may() -> None:
    """That nobody else may is shown of all that is declared, in tests/ops/test_declared.py."""
    roles: dict[Role, set[str]] = {}
    for verb, one in declared_by(Ledger).items():
        roles.setdefault(one.role, set()).add(verb)
    assert roles == {
        Role.VIEWER: {"accounts", "show", "freezes", "statement", "at_risk"},
        Role.OPERATOR: {"open", "credit", "verify"},
        Role.ADMIN: {"adjust", "reverse", "freeze", "release", "capture"},
    }


async def test_a_label_is_for_those_who_act(app: App) -> None:
    """It is free text, and often somebody's name."""
    assert (await (await ledger_of(app, Role.OPERATOR)).open("acme", "Acme Ltd.")).label == "Acme Ltd."
    viewer = await ledger_of(app, Role.VIEWER)
    assert (await viewer.show("acme")).label is None
    assert [(one.name, one.label) for one in (await viewer.accounts()).items] == [("acme", None)]


async def test_the_application_acts_as_itself(app: App) -> None:
    await app.ledger.open("acme")
    await app.ledger.open("acme")
    await app.ledger.credit("acme", 5, "k", reason="gift")
    assert await app.ledger.balance("acme") == {"available": 5, "frozen": 0}
