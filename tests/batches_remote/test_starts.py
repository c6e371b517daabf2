"""A start that always fails: it ends by its own bounds, as the provider calls it, and holds nobody up meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from redrive import App, State
from redrive.kernel.commit import Commit
from redrive.kernel.machine import Event, Transition
from redrive.kernel.reads import Query
from redrive.remote import ProviderError, RemoteItem
from tests.batches_remote.conftest import (
    Scripted,
    counts,
    made,
    make_app,
    money,
    opened,
    rich,
    service,
    settled,
    work,
)
from tests.batches_remote.test_overdue import close_circuit, open_circuit

pytestmark = pytest.mark.anyio


class Broken(Scripted):
    """Starts of {"broken": …} are answered with a 500, and have begun a job all the same where that says so."""

    finds = False
    mends = False

    async def start(self, item: RemoteItem, idempotency_key: str) -> str:
        if "broken" not in item.payload or self.mends:
            return await super().start(item, idempotency_key)
        self.starts[idempotency_key] += 1
        if item.payload["broken"] == "began":
            self.jobs[idempotency_key] = {}
        raise ProviderError("internal", status_code=500, code="E_RENDER", retry_after="3600")

    @property
    def can_find(self) -> bool:
        return self.finds

    async def find(self, key: str) -> str | None:
        return key if key in self.jobs else None


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    async with opened(make_app(store_url, max_start_attempts=3)) as app:
        yield app


@pytest.fixture
def provider(app: App) -> Broken:
    made = Broken()
    app.provider("video", made)
    return made


async def make_due(app: App) -> int:
    """Lets the backoff of all that waits be over."""
    store = await app.store()
    waiting = await store.find(Query((State.DELAYED,), limit=100))
    await store.apply(Commit(transitions=[Transition(one.id, Event.DUE, State.QUEUED) for one in waiting]))
    return len(waiting)


async def rounds(app: App, batch: object, times: int) -> None:
    for _ in range(times):
        await make_due(app)
        await work(app, batch)  # type: ignore[arg-type]


async def test_one_that_always_fails_steps_out_of_its_lane(app: App, provider: Broken) -> None:
    """Three lanes: behind item 1 come 4, 7, 10 …; they waited until its day was over."""
    await rich(app)
    batch = await made(app, [{"broken": "no"}, *[{}] * 14])
    await work(app, batch)
    assert (await counts(app, batch))["completed"] == 10, "the two other lanes"
    waits = await (await service(app)).waits_for(batch.id)
    assert [one.code for one in waits] == ["start", "turn"], "each item that has not ended is accounted for"
    assert waits[0].text.startswith(
        "1 could not be started yet, the first is item 1: it could not be started (attempt 1"
    )
    assert waits[1].text.startswith("4 for their turn")
    await rounds(app, batch, 1)
    assert await counts(app, batch) == {"completed": 14, "pending": 1}
    [item] = await (await service(app)).items(batch.id, states=["pending"])
    assert "attempt 2 of 3" in str(item.waits_for)
    await rounds(app, batch, 1)
    found = await settled(app, batch)
    assert (found.state, await money(app)) == ("completed", (1000 - 140, 0, 140))
    [item] = await (await service(app)).items(batch.id, states=["failed"])
    assert (item.error_code, item.failure_type, item.unknown) == ("E_RENDER", "model_error", True)
    assert provider.starts[f"{batch.id}-1:1"] == 3, "always by the same key"


async def test_at_most_one_steps_out_of_each_lane_and_none_while_the_circuit_is_open(
    app: App, provider: Broken
) -> None:
    await rich(app)
    batch = await made(app, [{"broken": "no"}] * 12)
    await work(app, batch)
    assert len(provider.starts) == 3
    await open_circuit(app)
    await rounds(app, batch, 1)
    assert len(provider.starts) == 3
    await close_circuit(app)
    await rounds(app, batch, 1)
    assert len(provider.starts) == 6, "each lane goes on with one more, and no further"


@pytest.mark.parametrize("began", ["began", "no"])
async def test_the_last_look_is_by_key_where_the_provider_can(app: App, provider: Broken, began: str) -> None:
    """A 500 may have begun a job: its customer gets it, and nobody starts it again."""
    provider.finds = True
    await rich(app)
    batch = await made(app, [{"broken": began}])
    await work(app, batch)
    await rounds(app, batch, 3)
    found = await settled(app, batch)
    [item] = await (await service(app)).items(batch.id)
    paid = 10 if began == "began" else 0
    assert (found.captured, item.state) == (paid, "completed" if paid else "failed")
    assert not item.unknown, "by the provider's word"
    assert set(provider.starts) == {f"{batch.id}-1:1"}


async def test_what_may_have_begun_is_not_begun_again_by_a_retry(app: App, provider: Broken) -> None:
    await rich(app)
    batch = await made(app, [{"broken": "began"}, {"refuse": 400}])
    await work(app, batch)
    await rounds(app, batch, 3)
    batch = await settled(app, batch)
    unknown, refused = await (await service(app)).items(batch.id)
    assert (unknown.unknown, refused.unknown) == (True, False)
    assert await money(app) == (1000, 0, 0)
    provider.mends = True
    await (await service(app)).retry_failed(batch.id)
    batch = await settled(app, batch)
    assert (batch.round, batch.captured) == (2, 10)
    assert set(provider.starts) == {f"{batch.id}-1:1"}, "the same key: the provider knows its job"
