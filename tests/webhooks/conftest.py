"""Webhooks, with a customer's server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.ops.access import Caller, Role
from redrive.settings import load_settings
from redrive.webhooks.deliveries import Deliveries
from redrive.webhooks.service import Endpoints
from redrive.webhooks.settings import WebhookSettings
from tests.webhooks.receiver import Receiver, receiving
from tests.worker.conftest import drain, until

ANN = Caller("ann", Role.OPERATOR)
HERE = ["127.0.0.0/8"]


def make_app(url: str, **own: Any) -> App:
    settings = load_settings(url=url, log_format="off").holding(WebhookSettings(**{"allow_networks": HERE, **own}))
    return App(settings=settings)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as own:
        yield own


BOTH_STORES = pytest.mark.parametrize("app_url", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def app_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The store that a test names, else SQLite: what is about statements runs on both (``BOTH_STORES``)."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path}/redrive.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def app(app_url: str) -> AsyncIterator[App]:
    app = make_app(app_url)
    await app.migrate()
    yield app
    await app.close()


@pytest.fixture
async def memory() -> AsyncIterator[App]:
    """One that needs no server, for what does not depend on the store."""
    app = make_app("sqlite:///:memory:")
    await app.migrate()
    yield app
    await app.close()


async def endpoints(app: App, caller: Caller = ANN) -> Endpoints:
    return (await app.operator(caller)).of(Endpoints)


async def deliveries(app: App, caller: Caller = ANN) -> Deliveries:
    return (await app.operator(caller)).of(Deliveries)


async def added(app: App, receiver: Receiver, *events: str, account: str = "acme", **more: Any) -> Any:
    return await (await endpoints(app)).add(receiver.url(), account, [*events], **more)


async def run_all(app: App) -> None:
    """Runs everything that is ready; retries wait for their time."""
    await drain(app, queues=("webhooks",))


async def ended(app: App, delivery: str) -> Any:
    """Runs a worker until a delivery has ended, and returns it."""
    own = await deliveries(app)

    async def over() -> Any:
        found = await own.show(delivery)
        return found if found.state != "pending" else None

    async with app.worker(queues="webhooks", sleep=0.05):
        return await until(over)


async def only(app: App) -> Any:
    """Returns the one delivery that there is, with its attempts."""
    own = await deliveries(app)
    [one] = (await own.list()).items
    return await own.show(one.id)
