"""What a worker tells the store before its first claim, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import App, Context
from redrive.kernel.commit import Commit, Limit
from redrive.observe.logs import TaskLog
from redrive.settings import load_settings


@pytest.fixture
async def store() -> Any:
    app = App("sqlite:///:memory:")
    yield await app.store()
    await app.close()


def make(name: str = "default", *, limited: int | None = None, cron: bool = False, **settings: Any) -> App:
    app = App("sqlite:///:memory:", name=name, settings=load_settings(url="sqlite:///:memory:", **settings))

    @app.task("K", concurrency=limited)
    async def k(ctx: Context) -> None: ...

    if cron:
        app.periodic("K", cron="0 6 * * *", name=f"{name}-daily")
    return app


async def start(app: App, store: Any) -> None:
    await app.worker(store, log=TaskLog(style="off")).prepare()


async def schedules(store: Any) -> list[str]:
    return sorted(row.name for row in (await store.overview()).schedules)


async def limit(store: Any) -> tuple[Any, ...]:
    [row] = [row for row in (await store.overview()).limits if row.kind == "K"]
    return row.concurrency, row.rate_ms, row.actor


async def test_a_worker_without_schedules_leaves_those_of_others(store: Any) -> None:
    await start(make(cron=True), store)
    await start(make("billing", cron=True), store)
    await start(make(), store)
    await start(App("sqlite:///:memory:"), store)
    await start(make("shop"), store)
    assert await schedules(store) == ["billing-daily", "default-daily"]


async def test_an_application_with_a_name_takes_back_its_last_schedule(store: Any) -> None:
    await start(make("billing", cron=True), store)
    await start(make("shop", cron=True), store)
    await start(make("billing"), store)
    assert await schedules(store) == ["shop-daily"]


async def test_a_limit_that_configuration_no_longer_has_is_lifted(store: Any) -> None:
    await start(make(limited=2), store)
    assert await limit(store) == (2, None, None)
    await start(make(), store)
    assert await limit(store) == (None, None, None)


async def test_zero_lifts_a_limit(store: Any) -> None:
    await start(make(kind_concurrency={"K": 3}, kind_rate_limit_ms={"K": 100}), store)
    assert await limit(store) == (3, 100, None)
    await start(App("sqlite:///:memory:"), store)
    assert await limit(store) == (3, 100, None), "a worker that does not know the kind has no say"
    await start(make(limited=3, kind_concurrency={"K": 0}), store)
    assert await limit(store) == (None, None, None)


async def test_an_operators_limit_stays(store: Any) -> None:
    await start(make(limited=2), store)
    await store.apply(Commit(controls=[Limit("K", 1, None, actor="ann")]))
    await start(make(kind_concurrency={"K": 0}), store)
    assert await limit(store) == (1, None, "ann")
