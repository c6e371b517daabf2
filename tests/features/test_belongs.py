"""What a task belongs to is said by its feature, once for API, command line and console."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.feature import Belongs, Caller, Role
from redrive.kernel.reads import Query
from redrive.ops import views
from redrive_kit.examples.orders import ORDERS
from tests.api.conftest import served
from tests.cli.conftest import here, redrive  # noqa: F401 - fixtures
from tests.console.conftest import console, page
from tests.features.conftest import placed

TOLD = {"feature": "orders", "label": "order o1", "page": "/orders/o1"}


async def seen(app: App, role: Role = Role.VIEWER) -> dict[str, Any]:
    operator = await app.operator(Caller("eve", role))
    [task] = (await operator.tasks.list(Query(kind="ORDERS_PARCEL"))).tasks
    return views.task(task, operator.sight)


async def test_over_http_and_in_the_console(app: App) -> None:
    await placed(app)
    task = (await seen(app))["id"]
    async with served(app) as client:
        assert (await client.get(f"/api/tasks/{task}")).json()["task"]["belongsTo"] == TOLD
        assert [one["belongsTo"] for one in (await client.get("/api/tasks")).json()["tasks"]] == [TOLD]
    async with console(app) as client:
        assert '<a href="/ops/queue/orders/o1">order o1</a>' in await page(client, f"/tasks/{task}")


def test_by_command(redrive: Any, here: Path) -> None:  # noqa: F811
    (here / "shop.py").write_text(
        "from redrive import App\nfrom redrive_kit.examples.orders import ORDERS\n"
        "app = App('sqlite:///shop.db', features=[ORDERS])\n"
    )
    app = ("--app", "shop:app")
    assert redrive("migrate", *app).code == 0
    assert redrive("orders", "pay-in", "bob", "100", *app).code == 0
    assert redrive("orders", "place", "o1", "bob", "here", *app).code == 0
    [task] = json.loads(redrive("list", "--json", *app).out)["items"]
    assert "belongs to: order o1\n" in redrive("show", task["id"], *app).out
    shown = json.loads(redrive("show", task["id"], "--json", *app).out)["task"]
    assert shown["belongs_to"] == {"feature": "orders", "label": "order o1", "page": "/orders/o1"}


async def test_where_nobody_says_it_is_left_out(app: App, caplog: pytest.LogCaptureFixture) -> None:
    def broken(facts: Mapping[str, Any]) -> Belongs:
        raise KeyError("shelf")

    await placed(app)
    for feature in (replace(ORDERS, belongs=None), replace(ORDERS, belongs=broken)):
        other = App(settings=app.settings, features=[feature])
        assert "belongs_to" not in await seen(other)
        await other.close()
    stranger = App(settings=app.settings)
    with caplog.at_level(logging.ERROR, "redrive.features"):
        assert "belongs_to" not in await seen(stranger)
    await stranger.close()
    assert [record.message for record in caplog.records].count("what a task of orders belongs to cannot be said") == 1
    await app.enqueue("SYSTEM_HEALTH_CHECK")
    operator = await app.operator(Caller("eve", Role.VIEWER))
    [plain] = (await operator.tasks.list(Query(kind="SYSTEM_HEALTH_CHECK"))).tasks
    assert "belongs_to" not in views.task(plain, operator.sight)
    async with console(app) as client:
        assert "Belongs to" not in await page(client, f"/tasks/{plain.id}")
