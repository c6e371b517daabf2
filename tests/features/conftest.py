"""The example of a feature on both stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redrive import App
from redrive.ops.access import Caller, Role
from redrive.settings import load_settings
from redrive.stores.sqlite.migrate import STEPS
from redrive_kit.examples.orders import ORDERS
from redrive_kit.examples.orders.service import Orders

ANN = Caller("ann", Role.OPERATOR)


@pytest.fixture(params=["sqlite", "postgres"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/redrive.db" if sqlite else request.getfixturevalue("postgres_url")
    app = App(settings=load_settings(url=url, log_format="off"), features=[ORDERS])
    done = await app.migrate()
    assert done[-1] == "orders/0001_parcels"
    if sqlite:  # the other one's database has redrive's own already
        assert done[: len(STEPS)] == [step.label for step in STEPS]
    else:
        assert len(done) == 1
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
