"""A worker that connects with a role of its own does with a feature's tables all that a worker does."""

from __future__ import annotations

import psycopg
import pytest

from redrive import App
from redrive.examples.orders import ORDERS
from redrive.examples.orders.settings import OrderSettings
from redrive.ops import erase, operation_runner
from redrive.ops.allowance import UNRESTRICTED
from redrive.ops.retention import retention_of
from redrive.settings import load_settings
from tests.databases import Databases
from tests.features.conftest import placed
from tests.worker.conftest import drain

pytestmark = pytest.mark.anyio


async def test_it_reacts_examines_prunes_and_erases(databases: Databases, database: str) -> None:
    url = databases.url(database)
    owner = App(url, features=[ORDERS])
    assert await owner.migrate() == ["orders/0001_parcels"]
    await owner.close()
    with psycopg.connect(url, autocommit=True) as admin, databases.role("worker") as role:
        admin.execute(f"select redrive.grant_worker('{role}')")
        settings = load_settings(url=databases.url(database, user=role), log_format="off")
        app = App(settings=settings.holding(OrderSettings(keep_days=1e-7, late_hours=0)), features=[ORDERS])
        try:
            await as_a_worker(app)
        finally:
            await app.close()
            admin.execute(f"drop owned by {role}")


async def as_a_worker(app: App) -> None:
    await placed(app, addresses=("here", "nowhere"))
    await drain(app)
    store = await app.store()
    assert ORDERS.examine is not None
    assert [one.code for one in await ORDERS.examine(store, app.settings)] == ["orders_late"]
    await store.upkeep("prune", retention_of(app.settings, app.features))
    assert (await erase.preview(store, "bob", None))["orders_rows"] == 1
    operation, _ = await erase.begin(store, "bob", None, actor="ann", rule=UNRESTRICTED)
    while await operation_runner.step(store, operation.id, "w1") is not None:
        pass
    assert "orders_rows" not in await erase.preview(store, "bob", None)
