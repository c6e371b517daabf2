"""A batch whose items cannot go on says why, everywhere: a paused kind, a provider that no worker has any more."""

from __future__ import annotations

import json
from typing import Any

from redrive import App, State
from redrive.batches.batch_service import BatchService
from redrive.batches.remote.model import RemoteBatch
from redrive.batches.remote.upkeep import tell_ledger
from redrive.kernel.commit import Commit, Hold, Target
from redrive.kernel.handler_notes import UNHANDLED_COLLECTION
from redrive.kernel.reads import Query
from redrive.ledger import doctor
from redrive.ledger.settings import LedgerSettings
from tests.batches_remote.conftest import (
    ANN,
    Scripted,
    age,
    command,
    counts,
    made,
    make_app,
    make_due,
    money,
    settled,
    work,
)
from tests.batches_remote.test_faces import client_of
from tests.console.conftest import console, page, text_of
from tests.worker.conftest import until

ITEM = "BATCH_ITEM_VIDEO"


async def said_by_all(app: App, batch: RemoteBatch, words: str) -> None:
    """Insists that each face says these words."""
    assert words in "; ".join(one.text for one in await _waits(app, batch))
    async with client_of(app) as client:
        answer = (await client.get(f"/api/batches/{batch.id}")).json()
    assert words in "; ".join(one["text"] for one in answer["waitsFor"])
    async with console(app) as client:
        assert words in text_of(await page(client, f"/batches/{batch.id}"))
    shown = command("batch", "show", str(batch.id), "--url", app.settings.url)
    assert words in " ".join(shown.split())
    documents = json.loads(command("batch", "show", str(batch.id), "--json", "--url", app.settings.url))
    assert words in "; ".join(one["text"] for one in documents["waits_for"])

    async def why() -> bool:
        """An item that a worker has just claimed, to hand it back, waits for nothing."""
        found = [one.text for item in await _items(app) for one in await app.why(item.id)]
        return words in "; ".join(found)

    await until(why)


async def _waits(app: App, batch: RemoteBatch) -> list[Any]:
    return (await (await app.operator(ANN)).of(BatchService).show(batch.id)).waits_for


async def _items(app: App, kind: str = ITEM) -> list[Any]:
    return await (await app.store()).find(Query((State.QUEUED, State.DELAYED), kind, limit=10))


async def pause(app: App, name: str, on: bool) -> None:
    await (await app.store()).apply(Commit(controls=[Hold(Target.KIND, name, on, "ann", "the invoice is open")]))


async def handed_back(app: App) -> bool:
    return bool(await (await app.store()).records(UNHANDLED_COLLECTION))


async def at_stake(app: App) -> float | None:
    """Returns what is at risk when two hours have passed."""
    settings = app.settings.holding(LedgerSettings(at_risk_hours=1.0))
    await age(app, "ledger_freeze", "moved_at", 7200)
    await age(app, "batches_item", "started_at", 7200)
    await tell_ledger(await app.store(), settings, lambda: False)
    return await doctor.at_risk(await app.store(), settings)


async def test_a_paused_kind(app: App, provider: Scripted) -> None:
    batch = await work(app, await made(app, [{"polls": 2}, {"polls": 2}]))
    assert batch.settled and await _waits(app, batch) == []
    await pause(app, ITEM, True)
    batch = await work(app, await made(app, [{}, {}]))
    await said_by_all(app, batch, f"kind {ITEM} was paused by ann: the invoice is open")
    assert await at_stake(app) == 20.0
    await pause(app, ITEM, False)
    assert (await settled(app, batch)).captured == 20


async def test_a_paused_step(app: App, provider: Scripted) -> None:
    await pause(app, "BATCH_DISPATCH", True)
    batch = await work(app, await made(app, [{}]))
    assert [one.fix for one in await _waits(app, batch) if one.code == "paused"] == [
        "redrive resume --kind BATCH_DISPATCH"
    ]
    await pause(app, "BATCH_DISPATCH", False)
    assert (await settled(app, batch)).captured == 10


async def test_a_provider_that_no_worker_has_any_more(app: App, provider: Scripted) -> None:
    """Its items go back as they came, and end when a worker has it again."""
    provider.hold = True  # started, and not to be polled yet
    batch = await work(app, await made(app, [{}, {}]))
    other = make_app(app.settings.url)
    other.provider("audio", Scripted())
    await make_due(app, ITEM)
    async with other.worker(queues=",".join(other.queues())) as worker:
        await until(lambda: handed_back(app))
        assert await counts(app, batch) == {"processing": 2}
        told = f"worker {worker.id} hands {ITEM} back: its application has none"
        await said_by_all(app, batch, told)
    await other.close()
    assert await at_stake(app) == 20.0
    provider.hold = False
    await make_due(app, ITEM)
    assert (await settled(app, batch)).captured == 20
    assert await money(app) == (980, 0, 20)
    assert set(provider.starts.values()) == {1}
