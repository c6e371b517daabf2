"""A worker that dies between sending and settling: the event arrives at least once more, with the same id."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook

from redrive import App
from redrive.kernel.commit import Commit
from redrive.kernel.ports.store import Query
from redrive.webhooks import event_task
from tests.webhooks.conftest import BOTH_STORES, added, deliveries, ended, run_all
from tests.webhooks.receiver import Receiver
from tests.worker.conftest import until

pytestmark = [pytest.mark.anyio, pytest.mark.faults]
ROOT = Path(__file__).parents[2]
# The process that dies runs the sources that are tested, also where another checkout is installed.
SOURCES = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
DIES = """
import asyncio, os, signal, sys
from redrive import App
from redrive.webhooks import delivery_attempt

if sys.argv[1] == "before_log":
    async def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)
    delivery_attempt.DeliveryAttempt._write_down = die
else:
    wrote = delivery_attempt.DeliveryAttempt._write_down
    async def die(*given):
        await wrote(*given)
        os.kill(os.getpid(), signal.SIGKILL)
    delivery_attempt.DeliveryAttempt._write_down = die

async def main():
    await App().worker(queues="webhooks", sleep=0.05).run()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("app_url", "point"), [("sqlite", "before_log"), ("postgres", "before_settling")], indirect=["app_url"]
)
async def test_it_is_delivered_again_with_the_same_id(app: App, receiver: Receiver, app_url: str, point: str) -> None:
    endpoint = await added(app, receiver)
    sent = await app.webhooks.send("invoice.paid", {"n": 1}, account="acme")
    environment = {
        **os.environ,
        "REDRIVE_URL": app_url,
        "WEBHOOKS_ALLOW_NETWORKS": "127.0.0.0/8",
        "TASK_WORKER_LEASE_MS": "2000",
        "PYTHONPATH": SOURCES,
    }
    died = subprocess.run([sys.executable, "-c", DIES, point], env=environment, capture_output=True, timeout=120)
    assert died.returncode == -9, died.stderr.decode()
    assert len(receiver.got) == 1
    found = await ended(app, sent["deliveries"][0]["delivery"])
    assert found.state == "completed" and len(found.attempts) == (1 if point == "before_log" else 2)
    first, second = receiver.got
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == sent["event"]
    assert first.body == second.body
    Webhook(endpoint.secret).verify(second.body, dict(second.headers))


@BOTH_STORES
async def test_an_event_that_dies_between_its_deliveries_and_its_end_becomes_each_once(
    app: App, receiver: Receiver, app_url: str
) -> None:
    await added(app, receiver)
    await added(app, receiver)
    await app.apply(Commit(enqueues=[event_task("batch.completed", {}, "acme", "batch:1:completed")]))
    dies = DIES[: DIES.index("if sys.argv")] + KILLED_AFTER_APPLY + DIES[DIES.index("async def main") :]
    environment = {**os.environ, "REDRIVE_URL": app_url, "TASK_WORKER_LEASE_MS": "2000", "PYTHONPATH": SOURCES}
    died = subprocess.run([sys.executable, "-c", dies, "-"], env=environment, capture_output=True, timeout=120)
    assert died.returncode == -9, died.stderr.decode()
    listed = (await (await deliveries(app)).list()).items
    assert len(listed) == 2
    await ended(app, listed[0].id)
    await ended(app, listed[1].id)
    store = await app.store()

    async def over() -> bool:
        return all(task.finished for task in await store.find(Query(kind="WEBHOOK_EVENT", limit=5)))

    async with app.worker(queues="webhooks", sleep=0.05):
        await until(over)
    await run_all(app)
    assert len(receiver.got) == 2 and {one.headers["webhook-id"] for one in receiver.got} == {"batch:1:completed"}


KILLED_AFTER_APPLY = """
from redrive.handlers.context import Context
store = Context.store.fget
class Dies:
    def __init__(self, real):
        self.real = real
        self.sql = real.sql
    async def apply(self, commit):
        await self.real.apply(commit)
        os.kill(os.getpid(), signal.SIGKILL)
Context.store = property(lambda ctx: Dies(store(ctx)) if ctx.task.kind == "WEBHOOK_EVENT" else store(ctx))

"""
