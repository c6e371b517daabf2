"""What people and customers are told of a batch and its money: at its creation, and at its end."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from redrive import App
from redrive.batches.names import ItemState
from redrive.batches.remote.application import RemoteBatches
from redrive.kernel.commit import Commit, Hold, Target
from redrive.kernel.reads import Query
from tests.batches_remote.conftest import Scripted, command, made, rich, service, settled, work
from tests.batches_remote.test_faces import client_of
from tests.console.conftest import console, page, text_of

PAGE = Path(__file__).parents[2] / "docs" / "remote-batches.md"


async def keep_events(app: App) -> None:
    """Has events wait, so that they can be read: what is done has no payload."""
    await (await app.store()).apply(Commit(controls=[Hold(Target.KIND, "WEBHOOK_EVENT", True, "ann", "to read it")]))


async def events(app: App) -> list[dict[str, Any]]:
    """Returns what customers are told, the first first."""
    found = await (await app.store()).find(Query(kind="WEBHOOK_EVENT"))
    return [task.payload for task in reversed(found)]


def counts(**states: int) -> dict[str, int]:
    return dict.fromkeys(ItemState, 0) | states


async def test_a_batch_that_cannot_be_paid_is_said_at_once(app: App, provider: Scripted) -> None:
    await rich(app, amount=15)
    body = {"provider": "video", "account": "acme", "price": 10, "items": [1, 2]}
    said, fix = "account acme has 15 to spend, and this needs 20", "redrive ledger credit acme 5 --reason"
    async with client_of(app) as client:
        answer = (await client.post("/api/batches", json=body)).json()
        [waits] = answer["waitsFor"]
        assert waits["text"].startswith(f"{said}: it fails when it is dispatched") and waits["fix"].startswith(fix)
        affordable = (await client.post("/api/batches", json={**body, "items": [1]})).json()
        assert affordable["waitsFor"] == []
    async with console(app) as client:
        assert said in text_of(await page(client, f"/batches/{answer['id']}"))
    await work(app, await (await service(app)).show(answer["id"]))
    async with client_of(app) as client:
        failed = (await client.get(f"/api/batches/{answer['id']}")).json()
    assert failed["state"] == "failed" and failed["waitsFor"][0]["text"].endswith("a retry is refused")
    shown = command("batch", "show", answer["id"], "--url", app.settings.url)
    assert "account acme has" in shown and "redrive ledger credit acme" in shown and "failed by" not in shown
    async with client_of(app) as client:
        assert (await client.get(f"/api/batches/{answer['id']}/failures")).json()["byType"] == {}, "nothing was begun"
    assert failed["remote"]["settledAt"] is None and failed["endedAt"] is not None


async def test_the_customer_is_always_told_five_counts(app: App, provider: Scripted) -> None:
    await keep_events(app)
    await rich(app, amount=100)
    await settled(app, await made(app, [{}, {"fail": "no"}]))
    poor = await made(app, [{}, {}], price=1000)
    await settled(app, poor)
    waits = await made(app, [{}, {}, {}])
    await (await service(app)).cancel(waits.id)
    assert [one["data"]["items"] for one in await events(app)] == [
        counts(completed=1, failed=1),
        counts(failed=2),
        counts(cancelled=3),
    ]


async def test_the_counts_of_a_retry_that_is_cancelled_are_those_of_all_rounds(app: App, provider: Scripted) -> None:
    await keep_events(app)
    await rich(app, amount=100)
    batch = await settled(app, await made(app, [{}, {"fail": "no"}, {"fail": "no"}]))
    await (await service(app)).retry_failed(batch.id)
    await (await service(app)).cancel(batch.id)
    assert (await events(app))[-1]["data"]["items"] == counts(completed=1, cancelled=2)


async def test_the_documented_body_has_the_fields_of_a_real_one(app: App, provider: Scripted) -> None:
    await keep_events(app)
    await settled(app, await app.of(RemoteBatches).create([{}], provider="video"))
    [block] = [text for text in re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL) if '"type"' in text]
    documented = json.loads(block)["data"]
    [real] = await events(app)
    assert set(documented) == set(real["data"]) and set(documented["items"]) == set(real["data"]["items"])
