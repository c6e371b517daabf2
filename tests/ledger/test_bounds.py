"""Amounts that are too large, and sums that are, are refused in words, and spoil nothing for others."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import App
from redrive.batches.remote.application import RemoteBatches
from redrive.errors import InvalidInput
from redrive.kernel.commit import Commit
from redrive.kernel.ledger import MOST, Posting
from redrive.ledger.application import AppLedger
from tests.batches_remote.conftest import Scripted, app, rich, store_url  # noqa: F401 (fixtures)

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)]


async def test_an_amount_is_below_2_53(app: App) -> None:  # noqa: F811
    await rich(app)
    ledger = app.of(AppLedger)
    with pytest.raises(InvalidInput, match=f"below 2\\^53, not {MOST}"):
        await ledger.credit("acme", MOST, "k", reason="a test")
    await ledger.credit("acme", MOST - 1, "k", reason="a test")


async def test_a_sum_that_cannot_be_counted_is_refused_in_words(app: App) -> None:  # noqa: F811
    await rich(app)
    store = await app.store()
    rounds: list[Any] = [
        Posting(f"p{n}", (("system:credit", 1 - MOST), ("account:acme", MOST - 1))) for n in range(1023)
    ]
    await store.apply(Commit(postings=rounds))
    with pytest.raises(InvalidInput, match="would have more than can be counted"):
        await store.apply(Commit(postings=[Posting(f"q{n}", rounds[0].entries) for n in range(2)]))
    assert await store.sql.balance("account:acme") == 1000 + 1023 * (MOST - 1)
    await store.apply(Commit(postings=[Posting("back", (("system:credit", MOST - 1), ("account:acme", 1 - MOST)))]))


async def test_a_batch_whose_price_is_no_amount_is_not_made(app: App) -> None:  # noqa: F811
    app.provider("video", Scripted())
    await rich(app)
    with pytest.raises(InvalidInput, match="9,000 items at 1,099,511,627,776 cost"):
        await app.of(RemoteBatches).create([{}] * 9000, provider="video", account="acme", price=2**40)
