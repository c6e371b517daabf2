"""The example of a feature: everything of it is in its folder, and works on both stores."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive import App, State
from redrive.errors import InvalidInput
from redrive.kernel.audit import AuditFilter
from redrive.kernel.ports.store import Query
from redrive.ops import executor
from redrive.ops.doctor import examine
from redrive.ops.why import why
from redrive.settings import load_settings
from redrive_kit.examples.orders import ORDERS
from redrive_kit.examples.orders.service import OrderUnknown, OrderView
from redrive_kit.examples.orders.settings import OrderSettings
from tests import commands
from tests.api.conftest import served
from tests.features.conftest import ANN, orders
from tests.worker.conftest import drain


async def balances(app: App, *accounts: str) -> list[int]:
    store = await app.store()
    return [await store.sql.balance(account) for account in accounts]


async def test_an_order_from_its_placing_to_its_end(each_app: App) -> None:
    shop = await orders(each_app)
    await shop.pay_in("bob", 100)
    placed = await shop.place("o1", "bob", ["here", "there", "nowhere"], 10)
    assert placed == OrderView("o1", parcels={"queued": 3}, held=30)
    await drain(each_app)
    assert await shop.show("o1") == OrderView("o1", parcels={"completed": 2, "failed": 1}, held=10)
    assert await balances(each_app, "customer:bob", "shop") == [70, 20]
    assert [task.payload for task in await ended(each_app)] == [{"order": "o1"}]

    (failed,) = await each_app.failed.list()
    operator = await each_app.operator(ANN)
    await operator.failures.forget([failed.id], reason="no such place")
    assert await shop.show("o1") == OrderView("o1", parcels={"cancelled": 1, "completed": 2}, held=0)
    assert await balances(each_app, "customer:bob", "shop") == [80, 20]
    await each_app.retry(failed.id, actor="ann")
    assert await balances(each_app, "customer:bob", "held:o1") == [70, 10]
    assert len(await ended(each_app)) == 1


async def ended(app: App) -> list[Any]:
    """What was enqueued at the end of orders; it is completed, so its payload is in its result only."""
    operator = await app.operator(ANN)
    page = await operator.tasks.list(Query(kind="ORDERS_DONE", limit=10))
    found = []
    for task in page.tasks:
        task.payload = task.payload or {"order": str(task.result).split()[1]}
        found.append(task)
    return found


async def test_paying_in_is_written_down(each_app: App) -> None:
    shop = await orders(each_app)
    for _ in range(2):  # one form, sent twice
        await shop.pay_in("bob", 100, once="a form")
    (said,) = await (await each_app.store()).audit(AuditFilter(action="ORDERS_PAID_IN"), limit=10)
    assert (said.actor, said.target, said.after) == ("ann", "customer:bob", {"amount": 100})
    for amount in (0, -5):
        with pytest.raises(InvalidInput, match="more than 0"):
            await shop.pay_in("bob", amount)
    with pytest.raises(InvalidInput, match="customer"):
        await shop.pay_in("", 5)
    assert await balances(each_app, "customer:bob") == [100]


async def test_without_money_nothing_is_placed(each_app: App) -> None:
    shop = await orders(each_app)
    with pytest.raises(InvalidInput, match="below zero"):
        await shop.place("o1", "poor", ["here"], 10)
    with pytest.raises(OrderUnknown, match="no order 'o1'"):
        await shop.show("o1")
    assert await (await each_app.store()).counts() == []


async def test_its_route(app: App) -> None:
    await (await orders(app)).pay_in("bob", 100)
    async with served(app) as client:
        body = {"order": "o1", "customer": "bob", "addresses": ["here"], "price": 5}
        answer = await client.post("/api/orders", json=body, headers={"X-Actor": "ann"})
        assert (answer.status_code, answer.json()) == (201, {"order": "o1", "parcels": {"queued": 1}, "held": 5})
        assert (await client.get("/api/orders/o1")).json()["held"] == 5
        missing = await client.get("/api/orders/o2")
        assert missing.status_code == 404 and "no order 'o2'" in missing.json()["detail"]
        assert "/api/orders" in (await client.get("/openapi.json")).json()["paths"]


async def test_its_duty(app: App, caplog: pytest.LogCaptureFixture) -> None:
    shop = await orders(app)
    await shop.pay_in("bob", 100)
    await shop.place("o1", "bob", ["here"], 5)
    worker = app.worker(await app.store())
    assert "orders:remind" in worker.duties and "recover:orders" in worker.duties
    assert "recover:ledger" not in worker.duties  # it has no tasks
    with caplog.at_level("INFO", logger="redrive.orders"):
        await worker.duties["orders:remind"].run(await app.store(), "w1", lambda: False)
        assert caplog.messages == []
        late = App(settings=app.settings.holding(OrderSettings(late_hours=0)), features=[ORDERS])
        await late.worker(await app.store()).duties["orders:remind"].run(await app.store(), "w1", lambda: False)
    assert caplog.messages == ["order o1 has 1 parcels that do not move"]


async def test_a_command_that_does_not_know_it_leaves_its_tasks_alone(app: App) -> None:
    shop = await orders(app)
    await shop.pay_in("bob", 100)
    await shop.place("o1", "bob", ["here"], 5)
    (task,) = (await (await app.operator(ANN)).tasks.list(Query(kind="ORDERS_PARCEL"))).tasks
    stranger = App(settings=app.settings)
    try:
        with pytest.raises(redrive.RedriveError, match="of a feature that this process does not know"):
            await stranger.cancel(task.id)
        found = await app.get(task.id)
        assert found is not None and found.state is State.QUEUED
    finally:
        await stranger.close()
    await app.cancel(task.id)
    assert await balances(app, "customer:bob") == [100]


def test_migrate_brings_the_tables_of_the_applications_features(tmp_path: Path) -> None:
    code = "from redrive import App\nfrom redrive_kit.examples.orders import ORDERS\napp = App(features=[ORDERS])\n"
    (tmp_path / "shop.py").write_text(code)

    def migrate(*arguments: str) -> str:
        env = {**os.environ, "REDRIVE_URL": f"sqlite:///{tmp_path}/redrive.db"}
        return commands.redrive("migrate", "--app", "shop:app", *arguments, cwd=tmp_path, env=env, code=0).stdout

    assert "create table redrive_orders_parcel" in migrate("--sql")
    assert "applied orders/0001_parcels" in migrate()
    status = migrate("--status")
    assert "up to date" in status and "orders" in status and "parcels" in status, "also when it is no longer pending"
    assert [step["name"] for step in json.loads(migrate("--status", "--json"))["features"]["orders"]] == ["parcels"]
    (tmp_path / "shop.py").write_text("from redrive import App\napp = App()\n")
    assert "parcels" in migrate("--status"), "also to an application without it"


def test_an_application_brings_the_commands_of_its_features(tmp_path: Path) -> None:
    code = "from redrive import App\nfrom redrive_kit.examples.orders import ORDERS\napp = App(features=[ORDERS])\n"
    (tmp_path / "shop.py").write_text(code)

    def run(*arguments: str, **env: str) -> tuple[int, str, str]:
        env = {**os.environ, "REDRIVE_URL": f"sqlite:///{tmp_path}/redrive.db", **env}
        done = commands.redrive(*arguments, cwd=tmp_path, env=env)
        return done.returncode, done.stdout, done.stderr

    assert "bob has 50 more" in run("orders", "pay-in", "bob", "50", "--app", "shop:app")[1]
    assert "bob has 60 more" in run("orders", "pay-in", "bob", "60", REDRIVE_APP="shop:app")[1]
    assert "orders" in run("--help", REDRIVE_APP="shop:app")[1] and "orders" not in run("--help")[1]
    code, _, err = run("orders", "show", "o1")
    assert code == 2 and "No such command 'orders'" in err and "REDRIVE_APP" in err
    code, _, err = run("order", "show", "o1", REDRIVE_APP="shop:app")
    assert code == 2 and "No such command 'order'" in err and "REDRIVE_APP" not in err
    assert run("--help", REDRIVE_APP="nowhere:app")[0] == 0, "help needs no application"
    (tmp_path / "redrive.toml").write_text("redrive_app = 'shop:app'\n")
    assert "bob has 70 more" in run("orders", "pay-in", "bob", "70")[1]
    (tmp_path / "redrive.toml").write_text("nonsense\n")
    assert run("--help")[0] == 0 and "cannot be read" in run("orders", "show", "o1")[2]


async def test_a_worker_that_does_not_know_the_feature_hands_its_tasks_back(
    each_app: App, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = await orders(each_app)
    await shop.pay_in("bob", 100)
    await shop.place("o1", "bob", ["here", "there"], 10)
    stranger = App(settings=load_settings(url=each_app.settings.url, log_format="json"))
    try:
        worker = await drain(stranger)
        store = await stranger.store()
        parcels = await store.find(Query(states=(State.DELAYED,)))
        assert [(task.attempt_count, task.lease_token) for task in parcels] == [(0, None)] * 2
        assert (worker.health.requeued, worker.health.failed, worker.health.lost) == (2, 0, 0)
        said = [line for line in capsys.readouterr().err.splitlines() if "unknown_feature" in line]
        assert len(said) == 1 and '"feature":"orders"' in said[0]
        found = {finding.code: finding.text for finding in await examine(store)}
        assert found["unknown_feature"].startswith("2 tasks belong to feature orders, which no live worker knows")
        assert next(reason.code for reason in await why(store, parcels[0])) == "unknown_feature"
        await drain(each_app)
        assert "unknown_feature" not in {reason.code for reason in await why(store, parcels[0])}
        assert "unknown_feature" not in {finding.code for finding in await examine(store)}
    finally:
        await stranger.close()
    assert await shop.show("o1") == OrderView("o1", parcels={"queued": 2}, held=20)


async def test_an_executor_gets_no_task_of_a_feature_that_the_server_does_not_know(app: App) -> None:
    shop = await orders(app)
    await shop.pay_in("bob", 100)
    await shop.place("o1", "bob", ["here"], 10)
    stranger = App(settings=load_settings(url=app.settings.url, log_format="off"))
    try:
        store = await stranger.store()
        assert await executor.claim(store, "outside", ["default"], 5, 30.0) == []
        (parcel,) = await store.find(Query(states=(State.DELAYED,)))
        assert parcel.attempt_count == 0
    finally:
        await stranger.close()
