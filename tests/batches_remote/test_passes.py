"""One bounded pass per call: what it does, what it leaves, and that calls alone bring a batch to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from redrive import App, Context
from redrive.api.app import make_api
from redrive.batches.remote.application import RemoteBatches
from redrive.batches.settings import BatchSettings
from redrive.settings import load_settings
from redrive.testing.provider import SimulatedProvider, simulated_provider
from tests.batches_remote.conftest import Scripted, counts, listed, made, money, opened, rich

SECRET = "the secret of these tests"
QUICK = {"poll_first": 0.0, "poll_next": 0.0, "poll_later": 0.0}


@pytest.fixture(scope="module")
def simulated() -> Iterator[SimulatedProvider]:
    with simulated_provider("--duration", "0") as provider:
        yield provider


def make_app(url: str, providers: dict[str, Any] | None = None, **own: Any) -> App:
    settings = load_settings(
        url=url, log_format="off", internal_worker_secret=SECRET, **({"providers": providers} if providers else {})
    )
    app = App(settings=settings.holding(BatchSettings(**{**QUICK, **own})))

    @app.task("PLAIN")
    async def plain(ctx: Context) -> None: ...

    return app


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    async with opened(make_app(store_url)) as made:
        yield made


class Scheduler:
    """Calls as a scheduler does, over HTTP."""

    def __init__(self, app: App) -> None:
        transport = httpx.ASGITransport(app=make_api(app, None))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    async def call(self, status: int = 200, secret: str = SECRET, **body: Any) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {secret}"}
        answer = await self.client.post("/api/internal/batch-worker", json=body, headers=headers)
        assert answer.status_code == status, answer.text
        found: dict[str, Any] = answer.json()
        return found


def only(found: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(found[name] for name in names)


async def test_a_pass_does_as_much_as_it_may(app: App, provider: Scripted) -> None:
    await rich(app, amount=10_000)
    batches = [await made(app, [{"polls": 1}] * 12) for _ in range(6)]
    await app.enqueue("PLAIN")
    cron = Scheduler(app)
    first = await cron.call()
    # Five of six batches, ten items of each; the polls that these starts make due at once are within the limit.
    assert only(first, "dispatched", "started", "settled", "more") == (5, 50, 0, True)
    assert first["polled"] <= 25
    assert max(one["n"] for one in await _starts(app)) == 10
    assert (await app.of(RemoteBatches).get(batches[5].id)).state == "queued"
    second = await cron.call()
    assert second["dispatched"] == 1 and second["started"] <= 6 * 10 and second["polled"] <= 25
    # What is in other queues is not its business.
    assert [(one.kind, one.state) for one in await (await app.store()).counts() if one.kind == "PLAIN" and one.n] == [
        ("PLAIN", "queued")
    ]


async def _starts(app: App) -> list[dict[str, Any]]:
    """Returns how many items of each batch were started."""
    found = [await counts(app, one) for one in await listed(app)]
    return [{"n": one.get("processing", 0) + one.get("completed", 0)} for one in found]


async def test_ten_are_settled_at_once(app: App, provider: Scripted) -> None:
    await rich(app, amount=10_000)
    for _ in range(12):
        await made(app, [{}])
    cron, calls = Scheduler(app), []
    while not calls or calls[-1]["more"]:
        calls.append(await cron.call())
        assert len(calls) < 20
    assert sum(one["settled"] for one in calls) == 12 and max(one["settled"] for one in calls) <= 10
    assert max(one["dispatched"] for one in calls) == 5
    assert await money(app) == (10_000 - 120, 0, 120)
    assert only(await cron.call(), "dispatched", "started", "polled", "settled", "more") == (0, 0, 0, 0, False)


async def test_calls_alone_bring_a_batch_to_its_end(store_url: str, simulated: SimulatedProvider) -> None:
    app = make_app(store_url, {"video": simulated.table})
    await app.migrate()
    await rich(app)
    batch, cron, calls = await made(app, [{"n": n} for n in range(30)]), Scheduler(app), 0
    while (found := await app.of(RemoteBatches).get(batch.id)).state not in ("completed", "failed"):
        done = await cron.call()
        calls += 1
        assert done["started"] <= 10 and done["polled"] <= 25 and calls < 20
    assert (found.state, found.captured, found.released) == ("completed", 300, 0)
    assert await money(app) == (700, 0, 300)
    assert calls >= 3  # thirty starts, ten a pass
    starts = {key: n for key, n in simulated.seen()["keys"].items() if key.startswith(str(batch.id))}
    assert len(starts) == 30 and set(starts.values()) == {1}
    await app.close()


async def test_two_calls_at_once(app: App, provider: Scripted) -> None:
    batch = await made(app, [{}] * 12)
    cron = Scheduler(app)
    headers = {"authorization": f"Bearer {SECRET}"}
    answers = await asyncio.gather(*(cron.client.post("/api/internal/batch-worker", headers=headers) for _ in range(2)))
    assert sorted(one.status_code for one in answers) == [200, 409]
    refused = next(one.json() for one in answers if one.status_code == 409)
    assert "under way" in refused["detail"]
    # Those of several processes each do what is theirs: nothing is started twice.
    other = make_app(app.settings.url)
    other.provider("video", provider)
    for _ in range(6):
        await asyncio.gather(cron.call(), Scheduler(other).call())
    assert (await app.of(RemoteBatches).get(batch.id)).state == "completed"
    assert set(provider.starts.values()) == {1} and len(provider.starts) == 12
    await other.close()


async def test_only_with_the_secret(app: App) -> None:
    cron = Scheduler(app)
    assert (await cron.call(401, secret="guess"))["code"] == "UNAUTHORIZED"
    assert (await cron.client.get("/api/internal/batch-worker")).status_code == 401
    assert (await cron.call(422, maxSeconds=-1))["code"]
    assert (await cron.call(422, connection="none"))["code"] == "CONNECTION_UNKNOWN"
    app.settings.internal_worker_secret = None
    assert "INTERNAL_WORKER_SECRET" in (await cron.call(403))["hint"]
