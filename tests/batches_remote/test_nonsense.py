"""Providers that give one job to several items, or never answer: nobody pays twice, and nobody else waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from redrive import App
from redrive.errors import ConfigError
from redrive.remote import ProviderError, RemoteItem, Status
from redrive.remote.checked import RemoteProvider
from tests.batches_remote.conftest import Scripted, counts, made, make_app, money, service, settled


class OneJob(Scripted):
    """Answers every start with the same id."""

    async def start(self, item: RemoteItem, idempotency_key: str) -> str:
        await super().start(item, idempotency_key)
        self.jobs["0"] = {}
        return "0"


async def test_nobody_pays_twice_for_one_job(app: App) -> None:
    app.provider("video", OneJob())
    batch = await settled(app, await made(app, [{}] * 5))
    assert await counts(app, batch) == {"completed": 1, "failed": 4}
    items = await (await service(app)).items(batch.id)
    assert {one.error_code for one in items} == {None, "PROVIDER_JOB_SHARED"}
    [paid] = [one.n for one in items if one.state == "completed"]
    assert all(f"that of item {paid}" in str(one.error_message) for one in items if one.n != paid)
    assert await money(app) == (990, 0, 10)


async def test_jobs_of_other_batches_may_have_the_same_id(app: App) -> None:
    app.provider("video", OneJob())
    for _ in range(2):
        assert (await settled(app, await made(app, [{}]))).captured == 10
    assert await money(app) == (980, 0, 20)


async def test_every_call_has_an_end() -> None:
    class Silent:
        async def start(self, item: RemoteItem, idempotency_key: str) -> str:
            await asyncio.Event().wait()
            return ""

        async def poll(self, ids: Sequence[str]) -> dict[str, Status]:
            await asyncio.Event().wait()
            return {}

        async def cancel(self, job_id: str) -> None:
            await asyncio.Event().wait()

    silent = RemoteProvider("silent", Silent(), seconds=0.02)
    calls: tuple[Any, ...] = (
        silent.start(RemoteItem("1"), "k"),
        silent.poll(["1"]),
        silent.cancel("1"),
    )
    for call in calls:
        with pytest.raises(ProviderError, match=r"had not returned after 0\.02 seconds") as raised:
            await call
        assert raised.value.transient


def test_a_limit_that_is_none_is_refused() -> None:
    class Odd(Scripted):
        max_seconds = 0

    with pytest.raises(ConfigError, match="max_seconds of the provider odd is 0"):
        RemoteProvider("odd", Odd())


def test_items_have_a_time_limit_of_their_own(tmp_path: Any) -> None:
    app = make_app(f"sqlite:///{tmp_path}/redrive.db")
    app.provider("video", Scripted())
    assert app.registry.handlers["BATCH_ITEM_VIDEO"].timeout == 28 * 60
