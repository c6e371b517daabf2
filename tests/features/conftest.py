"""The example of a feature, on SQLite; on both stores (``each_app``) for what reaches its SQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from redrive import App
from redrive.ops.access import Caller, Role
from redrive.settings import load_settings
from redrive.stores.sqlite.migrate import STEPS
from redrive_kit.examples.orders import ORDERS
from redrive_kit.examples.orders.service import Orders

OWN_STEPS = [step.label for step in STEPS]
ANN = Caller("ann", Role.OPERATOR)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    async with _application(f"sqlite:///{tmp_path}/redrive.db", OWN_STEPS) as made:
        yield made


@pytest.fixture(params=["sqlite", "postgres"])
async def each_app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/redrive.db" if sqlite else request.getfixturevalue("postgres_url")
    async with _application(url, OWN_STEPS if sqlite else []) as made:
        yield made


@asynccontextmanager
async def _application(url: str, own_steps: list[str]) -> AsyncIterator[App]:
    """``own_steps``: what the database does not have of redrive's own."""
    app = App(settings=load_settings(url=url, log_format="off"), features=[ORDERS])
    done = await app.migrate()
    assert done[: len(own_steps)] == own_steps and done[-1] == "orders/0001_parcels"
    assert own_steps or len(done) == 1
    yield app
    await app.close()


async def orders(app: App) -> Orders:
    return (await app.operator(ANN)).of(Orders)


async def placed(app: App, order: str = "o1", customer: str = "bob", addresses: tuple[str, ...] = ("here",)) -> None:
    shop = await orders(app)
    await shop.pay_in(customer, 100)
    await shop.place(order, customer, addresses, 1)


@pytest.fixture(autouse=True)
def each_step(sqlite_step_by_step: None) -> None:
    """Steps are what is tested here."""
