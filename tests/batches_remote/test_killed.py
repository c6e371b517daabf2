"""A worker that is killed at each step of a batch: nothing is started twice, no money is lost, each round is settled
once, and the customer is told of it with the same id."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from redrive import App
from redrive.batches.names import BatchState
from redrive.batches.remote.application import RemoteBatches
from redrive.batches.remote.in_flight import in_flight
from redrive.batches.remote.model import RemoteBatch, count_items
from redrive.kernel.audit import AuditFilter
from redrive.kernel.reads import Query
from redrive.ledger.service import Ledger
from redrive.settings import load_settings
from redrive.settings.providers import parse_providers
from redrive.testing.provider import SimulatedProvider, simulated_provider
from redrive.webhooks.settings import WebhookSettings
from tests.batches_remote.conftest import ANN, counts, made, money, rich
from tests.commands import Forked, start_module
from tests.webhooks.customer import Customer, customer
from tests.worker.conftest import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
# Before and after each step has landed, and when the outcome of its task has: what a step leaves undone is the next's.
STEPS = {
    "dispatch": ("dispatch:before", "dispatch:after", "step:landed"),
    "start": ("start:before", "start:after", "start:landed"),
    "poll": ("poll:before", "poll:after", "poll:landed"),
    "settle": ("settle:before", "settle:after", "step:landed"),
    "event": ("event:before", "event:after"),
    "request": ("request:before", "request:after", "log:after", "request:landed"),
}
AGAIN = ("dispatch:after", "start:after", "poll:after", "settle:before", "settle:after", "event:after", "request:after")
CANCEL = {
    "release": ("release:before", "release:after", "step:landed"),
    "cancel": ("cancel:before", "cancel:after", "poll:landed"),
    "settle": ("settle:before", "settle:after", "request:after"),
}
IN_FLIGHT, MOST_KILLED = 4, 12
LONGEST = 90  # seconds that a worker has to come to a point, on a busy machine
FAILS = {"simulate": {"outcome": "model_error"}}


@dataclass(slots=True)
class World:
    """An application, the processes around it, and workers that die where they are told to."""

    app: App
    provider: SimulatedProvider
    customer: Customer
    env: dict[str, str]

    async def batch(self, items: Sequence[Any]) -> RemoteBatch:
        return await made(self.app, items, webhook_url=self.customer.url)

    async def die_at(self, points: Sequence[str]) -> None:
        for point in points:
            with self.worker(point) as dying:
                try:
                    code = dying.wait(LONGEST)
                except subprocess.TimeoutExpired:
                    pytest.fail(f"{point} was not reached: {await self._tasks()}")
                assert code == -signal.SIGKILL, point

    async def _tasks(self) -> list[Any]:
        found = await (await self.app.store()).find(Query(limit=50))
        return [(task.kind, task.state.value, task.attempt_count, task.next_attempt_at) for task in found]

    def begin(self, *point: str) -> Forked:
        return start_module("tests.batches_remote.dying", *point, env=self.env)

    @contextmanager
    def worker(self, *point: str) -> Any:
        process = self.begin(*point)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)

    async def until_told(self, batch: RemoteBatch) -> RemoteBatch:
        """Lets a worker live until a batch is settled, and its customer told."""
        with self.worker():
            return await until(lambda: self._told(batch), LONGEST)  # type: ignore[no-any-return]

    async def _told(self, batch: RemoteBatch) -> RemoteBatch | None:
        found = await self.app.of(RemoteBatches).get(batch.id)
        told = any(event == event_id(found) for event, _ in self.customer.seen()["got"])
        return found if found.settled and told else None


def event_id(batch: RemoteBatch) -> str:
    return f"batch-{batch.id}-{batch.round}"


@pytest.fixture
async def world(store_url: str) -> AsyncIterator[World]:
    with simulated_provider("--duration", "0") as provider, customer(SECRET) as told:
        providers = {"video": provider.table}
        app = App(
            settings=load_settings(url=store_url, log_format="off", providers=parse_providers(providers)).holding(
                WebhookSettings(secret=SECRET, allow_networks=["127.0.0.0/8"])
            )
        )
        await app.migrate()
        await rich(app)
        env = {
            **os.environ,
            "REDRIVE_URL": store_url,
            "TEST_PROVIDERS": json.dumps(providers),
            "ENTERPRISE_WEBHOOK_SECRET": SECRET,
            "ENTERPRISE_WEBHOOK_RETRIES": "9",
            "WEBHOOKS_ALLOW_NETWORKS": "127.0.0.0/8",
        }
        yield World(app, provider, told, env)
        await app.close()


async def test_killed_after_a_start_before_the_settlement_and_after_a_webhook(world: World) -> None:
    await killed_at(world, ("start:after", "settle:before", "request:after"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("store_url", "step"),
    [
        *(("sqlite", step) for step in ("dispatch", "start", "event")),
        *(("postgres", step) for step in ("poll", "settle", "request")),
    ],
    indirect=["store_url"],
)
async def test_killed_at_each_boundary(world: World, step: str) -> None:
    await killed_at(world, STEPS[step])


async def killed_at(world: World, points: Sequence[str]) -> None:
    batch = await world.batch([{"n": n} for n in range(6)] + [FAILS])
    await world.die_at(points)
    batch = await world.until_told(batch)
    assert (batch.state, await counts(world.app, batch)) == (BatchState.COMPLETED, {"completed": 6, "failed": 1})
    assert await money(world.app) == (1000 - 60, 0, 60)
    assert set(world.provider.seen()["keys"]) == {f"{batch.id}-{n}:1" for n in range(1, 8)}
    await all_is_right(world, batch)


@pytest.mark.thorough
@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
async def test_no_more_jobs_run_than_may_while_workers_are_killed(world: World) -> None:
    """Three workers, killed at random for as long as there is work: the provider never has more jobs than it may, each
    item has one, and when all have ended every place is free."""
    world.env |= {"TEST_IN_FLIGHT": str(IN_FLIGHT)}
    chance = random.Random(25)
    jobs = [{"simulate": {"duration": chance.uniform(0.1, 0.8)}} for _ in range(20)]
    batches = [await world.batch(jobs) for _ in range(3)]
    own, killed = world.app.of(RemoteBatches), 0
    workers = [world.begin() for _ in range(3)]
    try:
        ends = time.monotonic() + 300
        while not all([(await own.get(one.id)).settled for one in batches]):
            assert time.monotonic() < ends, [await counts(world.app, one) for one in batches]
            await asyncio.sleep(chance.uniform(0.5, 2.0))
            if killed < MOST_KILLED:
                victim = chance.randrange(3)
                workers[victim].kill()
                workers[victim].wait()
                workers[victim], killed = world.begin(), killed + 1
    finally:
        for one in workers:
            one.kill()
            one.wait()
    seen, store = world.provider.seen(), await world.app.store()
    assert 1 < seen["most_at_once"] <= IN_FLIGHT and killed >= 3
    assert len(seen["keys"]) == seen["jobs"] == 60
    assert [await counts(world.app, one) for one in batches] == [{"completed": 20}] * 3
    places = [await in_flight(store, one.id) for one in batches]
    assert [taken[:2] for taken in places] == [(0, 0)] * 3, "every place is free again"
    assert await money(world.app) == (400, 0, 600)
    assert (await (await world.app.operator(ANN)).of(Ledger).verify()).ok


@pytest.mark.thorough
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_paid_job_outlives_its_workers(world: World) -> None:
    """More of them die of it in a row than any other task may: its customer has the job that was paid for."""
    world.env["TEST_MAX_DEATHS"] = "2"
    batch = await world.batch([{}])
    await world.die_at(["start:after", "start:after", "poll:before", "poll:after", "poll:after"])
    batch = await world.until_told(batch)
    assert (batch.state, batch.captured) == (BatchState.COMPLETED, 10)
    assert world.provider.seen()["jobs"] == 1
    await all_is_right(world, batch)


@pytest.mark.thorough
@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
async def test_killed_in_a_new_round(world: World) -> None:
    batch = await world.batch([*[{}] * 4, *[FAILS] * 3])
    await world.until_told(batch)
    await world.app.of(RemoteBatches).retry_failed(batch.id)
    await world.die_at(AGAIN)
    batch = await world.until_told(batch)
    assert (batch.round, batch.captured, batch.released) == (2, 40, 60)
    assert await money(world.app) == (1000 - 40, 0, 40)
    again = {f"{batch.id}-{n}:2" for n in (5, 6, 7)}
    assert set(world.provider.seen()["keys"]) == {f"{batch.id}-{n}:1" for n in range(1, 8)} | again
    await all_is_right(world, batch)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("store_url", "step"), [("sqlite", "release"), ("postgres", "cancel"), ("sqlite", "settle")], indirect=["store_url"]
)
async def test_killed_while_it_is_cancelled(world: World, step: str) -> None:
    """Of twelve items a few are at the provider, where only the first can succeed; the others wait for their turn."""
    batch = await world.batch([{}, *[{"simulate": {"duration": 600}}] * 11])
    await world.die_at(["start:landed"])
    await world.app.of(RemoteBatches).cancel(batch.id, "enough")
    await world.die_at(CANCEL[step])
    batch = await world.until_told(batch)
    found = await counts(world.app, batch)
    assert batch.state is BatchState.CANCELLED and found.get("completed", 0) <= 1
    assert found["cancelled"] == 12 - found.get("completed", 0) and len(world.provider.seen()["keys"]) < 12
    paid = 10 * found.get("completed", 0)
    assert (batch.captured, batch.released) == (paid, 120 - paid)
    assert await money(world.app) == (1000 - paid, 0, paid)
    await all_is_right(world, batch)


async def all_is_right(world: World, batch: RemoteBatch) -> None:
    """What holds wherever a worker died."""
    app, seen, told = world.app, world.provider.seen(), world.customer.seen()
    assert seen["jobs"] == len(seen["keys"]), "the same key was answered with the same job"
    verdict = await (await app.operator(ANN)).of(Ledger).verify()
    assert verdict.ok and "batches" in verdict.checks
    store = await app.store()
    assert len(await store.audit(AuditFilter(action="BATCH_SETTLED"), limit=10)) == batch.round
    assert batch.captured == batch.price * (await count_items(store, batch)).states["completed"]
    rounds = {f"batch-{batch.id}-{round}" for round in range(1, batch.round + 1)}
    bodies = {(event, body) for event, body in told["got"]}
    assert {event for event, _ in bodies} == rounds and len(bodies) == len(rounds), "the same id, the same body"
    assert told["refused"] == 0
