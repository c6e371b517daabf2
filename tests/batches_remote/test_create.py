"""Remote batches are made of all their items, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from redrive import App
from redrive.batches.batch import BadItem, BatchConflict, BatchUnknown
from redrive.batches.batch_input import BatchRequest
from redrive.batches.remote.application import RemoteBatches
from redrive.errors import InvalidInput, NotAllowed
from redrive.kernel.reads import Query
from redrive.ledger.accounts import AccountUnknown
from redrive.ops.access import Caller, Role
from redrive.remote import ProviderUnknown
from redrive.webhooks.address_guard import AddressRefused, NoSecret
from redrive.webhooks.service import Endpoints
from tests.batches_remote.conftest import ANN, Scripted, counts, listed, made, make_app, rich, rows_left, service


async def nothing_is_there(app: App) -> bool:
    store = await app.store()
    return not await listed(app) and await rows_left(app) == (0, 0) and not await store.find(Query())


async def test_a_bad_item_is_named_and_nothing_is_created(app: App, provider: Scripted) -> None:

    async def items() -> AsyncIterator[Any]:
        for n in range(2500):
            yield {"n": n} if n != 2100 else {"n": float("nan")}

    with pytest.raises(BadItem, match="item 2101"):
        await made(app, items())
    assert await nothing_is_there(app)
    with pytest.raises(InvalidInput, match="at least one item"):
        await made(app, [])
    for odd in ("abc", b"abc", {"n": 1}, 5):
        with pytest.raises(InvalidInput, match="items are a list of payloads"):
            await made(app, odd)
    assert await nothing_is_there(app)


async def test_what_cannot_be_is_refused_before_anything_is_read(app: App, provider: Scripted) -> None:
    own = app.of(RemoteBatches)
    with pytest.raises(ProviderUnknown, match="'vidoe'") as refused:
        await own.create([1], provider="vidoe")
    assert refused.value.hint == "did you mean video?"
    with pytest.raises(InvalidInput, match="price"):
        await own.create([1], provider="video", account="acme", price=-1)
    with pytest.raises(InvalidInput, match="needs an account"):
        await own.create([1], provider="video", price=1)
    with pytest.raises(AccountUnknown, match="nobody"):
        await own.create([1], provider="video", account="nobody", price=1)
    with pytest.raises(NotAllowed):
        await (await service(app, Caller("eve", Role.VIEWER))).create([1], BatchRequest(provider="video"))
    assert await nothing_is_there(app)


async def test_a_webhook_that_could_not_be_sent_is_refused(app: App, provider: Scripted) -> None:
    with pytest.raises(AddressRefused, match=r"10\.0\.0\.1 is private"):
        await made(app, [1], webhook_url="http://10.0.0.1/")
    with pytest.raises(NoSecret, match="no secret to sign") as caught:
        await made(app, [1], webhook_url="https://8.8.8.8/hook")
    assert "redrive webhooks rotate --account acme" in str(caught.value.hint)
    assert not await listed(app)
    await (await app.operator(ANN)).of(Endpoints).rotate_account("acme")
    batch = await made(app, [1], webhook_url="https://8.8.8.8/hook")
    assert batch.webhook_url == "https://8.8.8.8/hook"


async def test_one_key_is_one_batch(app: App, provider: Scripted) -> None:
    first = await made(app, [1, 2], key="k")
    again = await made(app, iter([1, 2]), key="k")
    assert again.id == first.id
    for other in ([2, 1], [1, 2, 3], [1]):
        with pytest.raises(BatchConflict, match="other content"):
            await made(app, other, key="k")
    with pytest.raises(BatchConflict, match="other content"):
        await made(app, [1, 2], price=11, key="k")
    assert len(await listed(app)) == 1
    assert await counts(app, first) == {"pending": 2}


async def test_bounds(store_url: str) -> None:
    app = make_app(store_url, max_items=3, max_bytes=1024)
    await app.migrate()
    app.provider("video", Scripted())
    await rich(app)
    with pytest.raises(BadItem, match="at most 3 items"):
        await made(app, [1, 2, 3, 4])
    with pytest.raises(BadItem, match="number 2 have more than 1024 bytes"):
        await made(app, ["x" * 600] * 2)
    assert await nothing_is_there(app)
    assert (await made(app, [1, 2, 3])).items == 3
    with pytest.raises(BatchUnknown):
        await app.of(RemoteBatches).get("01a1e742-96a0-747c-9010-109c46ff3691")
    await app.close()
