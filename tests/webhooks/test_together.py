"""Deliveries, rotations and changes of the same endpoints at once; and a group that is retried in a terminal."""

from __future__ import annotations

import asyncio
import random

import pytest

from redrive import App
from redrive.kernel.commit import Commit
from redrive.kernel.reactions import Rows
from tests.commands import redrive
from tests.webhooks.conftest import BOTH_STORES, added, deliveries, endpoints, make_app, run_all
from tests.webhooks.receiver import Receiver, Reply
from tests.worker.conftest import until

pytestmark = pytest.mark.anyio
ENDPOINTS, ROUNDS = 6, 25


@BOTH_STORES
async def test_nobody_waits_for_who_waits_for_them(app: App, app_url: str, receiver: Receiver) -> None:
    """Settlements name endpoints in any order, people change them meanwhile: all of it lands, none as a deadlock."""
    names = [(await added(app, receiver, account=f"a{n}")).id for n in range(ENDPOINTS)]
    others = [make_app(app_url) for _ in range(3)]
    order = random.Random(7)

    async def settle(own: App) -> None:
        store = await own.store()
        for _ in range(ROUNDS):
            told = [{"endpoint": name, "ok": order.random() < 0.5, "gone": False} for name in names]
            order.shuffle(told)
            await store.apply(Commit(rows=[Rows("webhooks", "endpoint_settled", tuple(told))]))

    async def change(own: App) -> None:
        service = await endpoints(own)
        for n in range(ROUNDS):
            name = names[n % ENDPOINTS]
            await service.rotate(name)
            await service.disable(name, "for a while")
            await service.enable(name)

    try:
        await asyncio.gather(*(settle(own) for own in others), *(change(own) for own in others[:2]), settle(app))
    finally:
        for own in others:
            await own.close()
    states = [one.state for one in (await (await endpoints(app)).list()).items]
    assert states == ["enabled"] * ENDPOINTS


async def test_deliveries_run_while_their_endpoints_are_changed(app: App, receiver: Receiver) -> None:
    names = [(await added(app, receiver, account=f"a{n}")).id for n in range(ENDPOINTS)]
    for n in range(ENDPOINTS * 5):
        await app.webhooks.send("a.b", {"n": n}, account=f"a{n % ENDPOINTS}")
    service = await endpoints(app)

    async def rotate() -> None:
        for name in names * 3:
            await service.rotate(name)

    await asyncio.gather(run_all(app), rotate())
    assert {one.state for one in (await (await deliveries(app)).list()).items} == {"completed"}
    assert len({one.headers["webhook-id"] for one in receiver.got}) == ENDPOINTS * 5


async def test_a_group_is_retried_from_the_command_line(app_url: str, receiver: Receiver) -> None:
    app = make_app(app_url, retries=0)
    await app.migrate()
    endpoint = await added(app, receiver)
    receiver.answers = [Reply(500), Reply(500), Reply(500), Reply()]
    for n in range(3):
        await app.webhooks.send("a.b", {"n": n}, account="acme")
    await run_all(app)
    assert await app.failed.count() == 3
    group = f"webhook:{endpoint.id}"
    command = ["retry", "--group", group, "--yes", "--url", app_url, "--by", "ann"]
    await asyncio.to_thread(redrive, *command, code=0)
    own = await deliveries(app)

    async def over() -> bool:
        return {one.state for one in (await own.list()).items} == {"completed"}

    async with app.worker(queues="webhooks", sleep=0.05):
        await until(over)
    assert (len(receiver.got), len({one.headers["webhook-id"] for one in receiver.got})) == (6, 3)
    assert (await (await endpoints(app)).show(endpoint.id)).failing_since is None
    await app.close()
