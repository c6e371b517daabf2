"""Many at once: sums stay exact, no account goes below zero, and nobody waits for who waits for them."""

from __future__ import annotations

import asyncio

import pytest

from redrive import App
from redrive.kernel.commit import Commit
from redrive.kernel.ledger import Posting
from redrive.ledger import movements
from redrive.ledger.accounts import TooLittle
from tests.ledger.conftest import BOTH_STORES, ledger_of

pytestmark = pytest.mark.anyio
AT_ONCE = 12


@BOTH_STORES
async def test_freezes_of_one_account_are_exact(app: App) -> None:
    """Three times as many as there is money for: exactly a third gets some."""
    others = [App(app.connections.main.url) for _ in range(3)]  # connections of their own
    try:
        await app.ledger.open("acme")
        await app.ledger.credit("acme", AT_ONCE, "k", reason="for a third of them")
        tried = [others[n % 3].ledger.freeze("acme", 1, f"batch:{n}", f"f{n}") for n in range(3 * AT_ONCE)]
        done = await asyncio.gather(*tried, return_exceptions=True)
        assert sum(one is None for one in done) == AT_ONCE
        assert all(one is None or isinstance(one, TooLittle) for one in done)
        assert await app.ledger.balance("acme") == {"available": 0, "frozen": AT_ONCE}
        ended = [n for n, one in enumerate(done) if one is None]
        await asyncio.gather(
            *(
                others[n % 3].ledger.settle("acme", f"batch:{n}", f"s{n}", captured=n % 2, released=1 - n % 2)
                for n in ended
            )
        )
        earned = sum(n % 2 for n in ended)
        assert await app.ledger.balance("acme") == {"available": AT_ONCE - earned, "frozen": 0}
        lines = (await (await ledger_of(app)).statement("acme", limit=500)).items
        assert min(min(one.available_after, one.frozen_after) for one in lines) == 0
        assert (await (await ledger_of(app)).verify()).ok
    finally:
        for one in others:
            await one.close()


@BOTH_STORES
async def test_two_accounts_in_opposite_orders_do_not_deadlock(app: App) -> None:
    others = [App(app.connections.main.url) for _ in range(2)]
    try:
        for name in ("a", "b"):
            await app.ledger.open(name)
            await app.ledger.credit(name, 100, name, reason="to begin with")

        def move(n: int, first: str, second: str) -> Commit:
            across = Posting(f"move:{n}", ((f"account:{first}", -1), (f"account:{second}", 1)), "moved")
            frozen = [movements.freeze(name, 1, f"r{n}", f"{name}{n}") for name in (first, second)]
            return Commit(
                postings=[across, *(one.postings[0] for one in frozen)],
                rows=[row for one in frozen for row in one.rows],
            )

        work = [others[n % 2].apply(move(n, *(("a", "b") if n % 2 else ("b", "a")))) for n in range(2 * AT_ONCE)]
        await asyncio.gather(*work)
        for name in ("a", "b"):
            assert await app.ledger.balance(name) == {"available": 100 - 2 * AT_ONCE, "frozen": 2 * AT_ONCE}
        assert (await (await ledger_of(app)).verify()).ok
    finally:
        for one in others:
            await one.close()


async def test_the_proof_holds_while_money_moves(app: App) -> None:
    await app.ledger.open("acme")
    await app.ledger.credit("acme", 1000, "k", reason="enough")
    ledger = await ledger_of(app)

    async def moves() -> None:
        for n in range(20):
            await app.ledger.freeze("acme", 1, f"r{n}", f"f{n}")

    moving = asyncio.create_task(moves())
    while not moving.done():
        assert (await ledger.verify()).problems == []
    await moving
