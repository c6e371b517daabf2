"""``app.ledger``: in a transaction of one's own, and what it refuses."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from redrive import App
from redrive.errors import InvalidInput
from redrive.kernel.audit import AuditFilter
from redrive.ledger.accounts import AccountUnknown, NotFrozen, TooLittle
from redrive.ledger.reversals import NotReversible
from tests.ledger.conftest import BOTH_STORES, ledger_of

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def transaction(app: App) -> AsyncIterator[Any]:
    """Yields a connection of the caller's with a transaction that is rolled back by an error, else committed."""
    url = app.connections.main.url
    if not url.startswith("sqlite"):
        import asyncpg

        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()
        return
    own = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    own.execute("begin immediate")
    try:
        yield own
        own.execute("commit")
    finally:
        own.close()


@BOTH_STORES
async def test_open_and_use_in_one_transaction(app: App) -> None:
    async with transaction(app) as own:
        await app.ledger.open("acme", connection=own)
        await app.ledger.credit("acme", 10, "c", reason="a gift", connection=own)
        await app.ledger.freeze("acme", 4, "work:1", "f", connection=own)
        await app.ledger.settle("acme", "work:1", "s", captured=1, released=3, connection=own)
    assert await app.ledger.balance("acme") == {"available": 9, "frozen": 0}
    assert (await (await ledger_of(app)).verify()).ok


@BOTH_STORES
async def test_a_credit_is_undone_once_in_a_transaction_or_without(app: App) -> None:
    await app.ledger.open("acme")
    await app.ledger.credit("acme", 10, "a", reason="paid")
    await app.ledger.credit("acme", 5, "b", reason="paid")
    with pytest.raises(RuntimeError, match="rolled back"):
        async with transaction(app) as own:
            await app.ledger.reverse("credit:a", reason="wrong customer", connection=own)
            raise RuntimeError("rolled back")
    assert await app.ledger.balance("acme") == {"available": 15, "frozen": 0}
    async with transaction(app) as own:
        await app.ledger.reverse("credit:a", reason="wrong customer", connection=own)
    for _ in range(2):
        await app.ledger.reverse("credit:b", reason="wrong customer")
    assert await app.ledger.balance("acme") == {"available": 0, "frozen": 0}
    with pytest.raises(NotReversible):
        await app.ledger.reverse("reverse:credit:b", reason="it was right")
    rows = await (await app.store()).audit(AuditFilter(action="LEDGER_REVERSED"), limit=10)
    assert [(row.actor, row.target) for row in rows] == [("app", "account:acme")] * 2
    assert (await (await ledger_of(app)).verify()).ok


async def test_an_unknown_account_is_refused_there_too(app: App) -> None:
    with pytest.raises(AccountUnknown, match="no account 'amce'"):
        async with transaction(app) as own:
            await app.ledger.credit("amce", 10, "c", reason="a gift", connection=own)
    with pytest.raises(AccountUnknown):
        await app.ledger.show("amce")


async def test_too_little_is_refused_there_too(app: App) -> None:
    await app.ledger.open("acme")
    await app.ledger.credit("acme", 5, "c", reason="a gift")
    with pytest.raises(TooLittle, match="less to spend than the 6"):
        async with transaction(app) as own:
            await app.ledger.freeze("acme", 6, "work:1", "f", connection=own)
    assert await app.ledger.balance("acme") == {"available": 5, "frozen": 0}


@BOTH_STORES
async def test_no_more_is_settled_than_is_frozen(app: App) -> None:
    await app.ledger.open("acme")
    await app.ledger.credit("acme", 50, "c", reason="a gift")
    for name in ("1", "2"):
        await app.ledger.freeze("acme", 10, f"work:{name}", f"f{name}")
    for amount in (11, 21):  # more than for this work; more than for all
        with pytest.raises(NotFrozen, match=f"10 of acme are frozen for work:1, not {amount}"):
            await app.ledger.settle("acme", "work:1", "s", captured=amount)
        with pytest.raises(NotFrozen):
            await (await ledger_of(app)).capture("acme", "work:1", "by hand", amount)
        with pytest.raises(NotFrozen, match=f"less than {amount}"):
            async with transaction(app) as own:
                await app.ledger.settle("acme", "work:1", "s", captured=amount, connection=own)
    with pytest.raises(NotFrozen, match="nothing of acme is frozen for 'work:9'"):
        await app.ledger.settle("acme", "work:9", "s", released=1)
    assert await app.ledger.balance("acme") == {"available": 30, "frozen": 20}


@pytest.mark.parametrize("reason", [None, "", " "])
async def test_a_reason_is_said(app: App, reason: Any) -> None:
    await app.ledger.open("acme")
    for move in (app.ledger.credit, app.ledger.adjust):
        with pytest.raises(InvalidInput, match="say why"):
            await move("acme", 1, "k", reason=reason)
