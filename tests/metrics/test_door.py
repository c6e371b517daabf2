"""Who may read the metrics of ``redrive up``, and what asking costs the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.errors import StoreUnavailable
from redrive.ops.access import Caller, Role
from redrive.settings import load_settings
from tests.api.conftest import served

SECRET = "a-secret-for-prometheus"


def make(folder: Path, **settings: Any) -> App:
    return App(settings=load_settings(url=f"sqlite:///{folder}/x.db", log_format="off", **settings))


async def token_of(app: App) -> str:
    operator = await app.operator(Caller("ann", Role.ADMIN))
    return (await operator.tokens.create("prometheus", "viewer")).secret


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


async def test_this_machine_is_let_in_as_long_as_there_are_no_tokens(tmp_path: Path) -> None:
    app = make(tmp_path)
    async with served(app) as client:
        assert (await client.get("/metrics")).status_code == 200
        assert (await client.get("/metrics", headers={"x-forwarded-for": "1.2.3.4"})).status_code == 401
        await token_of(app)
    async with served(make(tmp_path)) as client:
        assert (await client.get("/metrics")).status_code == 401


async def test_a_token_of_its_own_or_of_a_viewer(tmp_path: Path) -> None:
    app = make(tmp_path, metrics_token=SECRET)
    async with served(app, open_door=False) as client:
        secret = await token_of(app)
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers=bearer("wrong-wrong-wrong"))).status_code == 401
        assert (await client.get("/metrics", headers=bearer(SECRET))).status_code == 200
        assert (await client.get("/metrics", headers=bearer(secret))).status_code == 200
        assert (await client.get("/api/tasks", headers=bearer(SECRET))).status_code == 401


async def test_however_many_scrape_the_store_is_asked_twice_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the time for which what it said is good: all of this, on a slow machine, too."""
    monkeypatch.setattr("redrive.api.health.LET_IN_FOR_S", 3600.0)
    monkeypatch.setattr("redrive.ops.fleet_metrics.FRESH_FOR_S", 3600.0)
    app = make(tmp_path)
    async with served(app, open_door=False) as client:
        headers = bearer(await token_of(app))
        store: Any = await app.store()
        before = store.meter.calls["read"].counts[:]
        for _ in range(20):
            assert (await client.get("/metrics", headers=headers)).status_code == 200
        asked = sum(store.meter.calls["read"].counts) - sum(before)
        read = sum(feature.metrics is not None for feature in app.features) + 1  # one statement each, the outbox two
        assert asked == 2 + read, "the token and the figures"


async def test_who_was_let_in_reads_on_while_the_store_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("the store is away")

    app = make(tmp_path)
    secret = await token_of(app)
    other = (await (await app.operator(Caller("ann", Role.ADMIN))).tokens.create("other", "viewer")).secret
    async with served(app, open_door=False) as client:
        assert (await client.get("/metrics", headers=bearer(secret))).status_code == 200
        monkeypatch.setattr("redrive.api.health.LET_IN_FOR_S", 0.0)
        assert (await client.get("/metrics", headers=bearer(secret))).status_code == 200
        monkeypatch.setattr(app.access, "caller", away)
        monkeypatch.setattr(app.access, "has_tokens", away)
        monkeypatch.setattr(await app.store(), "figures", away)
        monkeypatch.setattr("redrive.ops.fleet_metrics.FRESH_FOR_S", 0.0)
        answer = await client.get("/metrics", headers=bearer(secret))
        assert answer.status_code == 200 and 'redrive_fleet_up{connection="default"} 0' in answer.text
        assert (await client.get("/metrics", headers=bearer(other))).status_code == 503
        proxied = {**bearer(secret), "x-forwarded-for": "1.2.3.4"}
        assert (await client.get("/metrics", headers=proxied)).status_code == 503
