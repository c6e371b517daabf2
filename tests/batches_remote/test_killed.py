"""A worker that is killed at each step of a batch: nothing is started twice, no money is lost, it is settled once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from redrive import App
from redrive.batches.batch import BatchState
from redrive.batches.remote.application import RemoteBatches
from redrive.batches.remote.model import RemoteBatch
from redrive.kernel.audit import AuditFilter
from redrive.kernel.reads import Query
from redrive.ledger.service import Ledger
from redrive.ops.access import Caller, Role
from redrive.settings import load_settings
from redrive.settings.providers import parse_providers
from redrive.testing.provider import simulated_provider
from tests.batches_remote.conftest import counts, made, money, rich
from tests.batches_remote.dying import POINTS
from tests.worker.conftest import until

pytestmark = pytest.mark.anyio


def worker(url: str, providers: str, *point: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "REDRIVE_URL": url, "TEST_PROVIDERS": providers}
    return subprocess.Popen([sys.executable, "-m", "tests.batches_remote.dying", *point], env=env)


@pytest.mark.thorough
async def test_killed_at_every_step(store_url: str) -> None:
    await killed_at(store_url, POINTS)


async def test_killed_after_a_start_and_before_the_settlement(store_url: str) -> None:
    await killed_at(store_url, ("start:after", "settle:before"))


async def killed_at(store_url: str, points: Sequence[str]) -> None:
    with simulated_provider("--duration", "0") as simulated:
        providers = {"video": simulated.table}
        app = App(settings=load_settings(url=store_url, log_format="off", providers=parse_providers(providers)))
        await app.migrate()
        await rich(app)
        batch = await made(app, [{"n": n} for n in range(7)])
        for point in points:
            dying = worker(store_url, json.dumps(providers), point)
            assert dying.wait(60) == -signal.SIGKILL, point
        living = worker(store_url, json.dumps(providers))
        try:
            batch = await until(lambda: ended(app, batch), 60)
        finally:
            living.terminate()
            living.wait(30)
        await all_is_right(app, batch, simulated.seen())
        await app.close()


async def all_is_right(app: App, batch: RemoteBatch, seen: dict[str, Any]) -> None:
    assert batch.state is BatchState.COMPLETED
    assert await counts(app, batch) == {"completed": 7}
    assert await money(app) == (1000 - 70, 0, 70)
    assert set(seen["keys"]) == {f"{batch.id}-{n}:1" for n in range(1, 8)}
    assert seen["jobs"] == 7, "the same key was answered with the same job"
    verdict = await (await app.operator(Caller("ann", Role.OPERATOR))).of(Ledger).verify()
    assert verdict.ok and "batches" in verdict.checks
    store = await app.store()
    assert len(await store.audit(AuditFilter(action="BATCH_SETTLED"), limit=10)) == 1
    assert len(await store.find(Query(kind="WEBHOOK_EVENT", limit=10))) == 1


async def ended(app: App, batch: RemoteBatch) -> RemoteBatch | None:
    found = await app.of(RemoteBatches).get(batch.id)
    return found if found.settled else None
