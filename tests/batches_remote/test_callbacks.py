"""Providers call when a job has ended: the item is looked at then, whatever order things come in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn

from redrive import App
from redrive.api.app import make_api
from redrive.batches.remote.application import RemoteBatches
from redrive.batches.remote.model import RemoteBatch
from redrive.batches.remote.reconcile import record_late
from redrive.batches.settings import BatchSettings
from redrive.kernel.audit import AuditFilter
from redrive.kernel.commit import Commit
from redrive.kernel.machine import Event, Transition
from redrive.kernel.task import State
from redrive.remote import RemoteItem, Status
from redrive.remote.callbacks import Callback, Callbacks
from redrive.settings import load_settings
from redrive.testing.provider import SimulatedProvider, simulated_provider
from tests.batches_remote.conftest import Scripted, made, money, opened, rich, service, work
from tests.cluster import free_port
from tests.worker.conftest import until

SECRET = "the secret of callbacks"
RARELY = {"poll_first": 3600.0, "poll_next": 3600.0, "poll_later": 3600.0}  # whoever waits for a poll fails


class Calling(Scripted):
    """A provider that was told where to call."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: dict[str, str] = {}

    async def start(self, item: RemoteItem, idempotency_key: str) -> str:
        assert item.callback_url is not None
        self.addresses[idempotency_key] = item.callback_url
        return await super().start(item, idempotency_key)


def make_app(url: str, base: str = "https://jobs.example.com", providers: Any = None, **own: Any) -> App:
    given = {"providers": providers} if providers else {}
    settings = load_settings(url=url, log_format="off", callback_base_url=base, callback_secret=SECRET, **given)
    return App(settings=settings.holding(BatchSettings(**{**RARELY, **own})))


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    async with opened(make_app(store_url)) as made:
        yield made


@pytest.fixture
def provider(app: App) -> Calling:
    made = Calling()
    app.provider("video", made)
    return made


@pytest.fixture
async def client(app: App) -> AsyncIterator[httpx.AsyncClient]:
    # As behind a proxy on this machine: served on its own address, and asked by the name that the world has for it.
    api = make_api(app, None, hosts=("127.0.0.1",))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=api), base_url="https://jobs.example.com") as made:
        yield made


async def items(app: App, batch: RemoteBatch) -> list[Any]:
    return await (await service(app)).items(batch.id)


async def test_a_call_has_the_job_looked_at_now(app: App, provider: Calling, client: httpx.AsyncClient) -> None:
    batch = await made(app, [{}, {"polls": 1}])
    assert (await work(app, batch)).state == "processing"
    first, second = (provider.addresses[f"{batch.id}-{n}:1"] for n in (1, 2))
    assert first.startswith("https://jobs.example.com/api/batches/callback/")
    before = [(one.state, one.poll_count) for one in await items(app, batch)]
    assert before == [("processing", 0)] * 2
    assert (await client.post(first, content=b"x" * 2_000_000)).status_code == 204  # nobody reads it
    assert [one.poll_count for one in await items(app, batch)] == [0, 0]  # a call is no poll
    await work(app, batch)
    assert [(one.state, one.poll_count) for one in await items(app, batch)] == [("completed", 1), ("processing", 0)]
    # The first answer to the second call is "not yet". One more call changes nothing: polling goes on by itself.
    for status in (204, 204, 204):
        assert (await client.post(second)).status_code == status
    await work(app, batch)
    await work(app, batch)
    assert [(one.state, one.poll_count) for one in await items(app, batch)] == [("completed", 1), ("processing", 1)]


async def test_a_call_that_comes_before_its_start_has_landed(
    app: App, provider: Calling, client: httpx.AsyncClient
) -> None:
    provider_start = provider.start

    async def start(item: RemoteItem, idempotency_key: str) -> str:
        job = await provider_start(item, idempotency_key)
        assert item.callback_url is not None
        assert (await client.post(item.callback_url)).status_code == 204  # quicker than we are
        return job

    provider.start = start  # type: ignore[method-assign]
    batch = await made(app, [{}])
    assert (await work(app, batch)).state == "completed"
    assert [one.poll_count for one in await items(app, batch)] == [1]


async def test_a_call_that_comes_during_a_poll_that_was_too_early(
    app: App, provider: Calling, client: httpx.AsyncClient
) -> None:
    batch = await made(app, [{"polls": 1}])
    await work(app, batch)
    address, poll = provider.addresses[f"{batch.id}-1:1"], provider.poll

    async def late(ids: Any) -> Any:
        found = await poll(ids)
        await client.post(address)
        return found

    provider.poll = late  # type: ignore[method-assign]
    [item] = await items(app, batch)
    await (await app.store()).apply(_due(item.task_id))
    assert (await work(app, batch)).state == "completed"
    assert [one.poll_count for one in await items(app, batch)] == [2]


def _due(task_id: Any) -> Commit:
    return Commit(transitions=[Transition(task_id, Event.DUE, State.QUEUED)])


async def test_strangers_learn_nothing(app: App, provider: Calling, client: httpx.AsyncClient) -> None:
    batch = await made(app, [{}])
    await work(app, batch)
    address = urlsplit(provider.addresses[f"{batch.id}-1:1"]).path
    said = []
    for wrong in (address[:-1] + ("A" if address[-1] != "A" else "B"), address.replace("-1.", "-2."), "x", "%00"):
        path = wrong if wrong.startswith("/") else f"/api/batches/callback/{wrong}"
        said.append(await client.post(path))
    assert {(one.status_code, one.json()["detail"]) for one in said} == {
        (403, "this address is not valid, or no longer")
    }
    assert (await client.post(f"{address}?connection=none")).status_code == 403
    assert (await client.get(address)).status_code in (400, 401)
    assert (await client.post("/api/batches/remote")).status_code in (400, 401)
    answers = [(await client.post("/api/batches/callback/x")).status_code for _ in range(12)]
    assert answers[-1] == 429
    assert (await client.post(address)).status_code == 204  # nobody can lock a provider out by guessing


async def test_a_late_result_is_recorded_and_not_charged(
    app: App, provider: Calling, client: httpx.AsyncClient
) -> None:
    await rich(app, amount=100)
    app.settings.of(BatchSettings).max_poll_count = 1
    batch = await made(app, [{"polls": 2}])
    await work(app, batch)
    address = provider.addresses[f"{batch.id}-1:1"]
    [item] = await items(app, batch)
    await (await app.store()).apply(_due(item.task_id))
    assert (await work(app, batch)).state == "failed"
    assert await money(app) == (100, 0, 0)
    assert (await client.post(address)).status_code == 204
    await work(app, batch)
    [item] = await items(app, batch)
    assert (item.state, item.late, item.failure_type) == ("failed", True, "timeout")
    assert item.result == {"did": f"{batch.id}-1:1"}
    assert await money(app) == (100, 0, 0)
    audits = await (await app.store()).audit(AuditFilter(action="BATCH_LATE_RESULT"), limit=5)
    assert [one.target for one in audits] == [f"batch:{batch.id}"]


@pytest.fixture(scope="module")
def simulated() -> Iterator[SimulatedProvider]:
    with simulated_provider("--duration", "0.3", "--spread", "0") as provider:
        yield provider


@pytest.mark.parametrize(
    ("result", "kept", "lost"),
    [({"a": "b\0"}, '{"a":"b\\\\x00"}', False), ("x" * 3_000_000, None, True), (None, None, False)],
    ids=["nul", "large", "none"],
)
def test_a_late_result_that_cannot_be_kept_is_recorded_as_such(result: Any, kept: str | None, lost: bool) -> None:
    row = {"job": "j", "state": "failed", "scope": None}
    made = record_late({"batch": "b", "n": 1, "round": 1}, row, Status.succeeded(result))
    assert made.rows[0].values[0]["result"] == kept
    assert ("not_stored" in made.audits[0].after) is lost  # type: ignore[operator]


async def test_the_simulator_calls_over_http(store_url: str, simulated: SimulatedProvider) -> None:
    port = free_port()
    app = make_app(store_url, f"http://127.0.0.1:{port}", {"video": simulated.table})
    await app.migrate()
    await rich(app)
    config = uvicorn.Config(make_api(app, None), port=port, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())

    async def begun() -> bool:
        return server.started

    async def all_called() -> bool:  # it counts a call when it has heard the answer
        return int(simulated.seen()["callbacks"].get("204", 0)) >= 12

    try:
        await until(begun)
        batch = await made(app, [{"n": n} for n in range(12)])

        async def ended() -> RemoteBatch | None:
            found = await app.of(RemoteBatches).get(batch.id)
            return found if found.settled else None

        async with app.worker(queues=",".join(app.queues()), concurrency=10):
            found: RemoteBatch = await until(ended)
        assert (found.state, found.captured) == ("completed", 120)
        assert {one.poll_count for one in await items(app, batch)} == {1}
        await until(all_called)
    finally:
        server.should_exit = True
        await serving
        await app.close()


@pytest.mark.parametrize("item", ["noNumber", "0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b", "job-x", "job-7"])
async def test_an_address_that_is_about_no_item_is_refused(app: App, client: httpx.AsyncClient, item: str) -> None:
    """Signed with our secret, by whatever else uses it."""
    signer = Callbacks("https://jobs.example.com", SECRET, "api/batches/callback")
    answer = await client.post(signer.url(Callback(item, 1), time.time()))
    assert (answer.status_code, answer.json()["code"]) == (403, "CALLBACK_REFUSED"), answer.text
