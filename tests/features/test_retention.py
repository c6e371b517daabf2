"""Rows of a feature past their keep go in bounded pieces, by the duty that prunes everything else."""

from __future__ import annotations

import pytest

from redrive import App
from redrive.errors import RedriveError
from redrive.kernel.retention import FeatureRule, Retention
from redrive.ops.retention import retention_of
from redrive.stores import upkeep
from redrive.stores.postgres import upkeep as postgres
from redrive.stores.sqlite import upkeep as sqlite
from redrive_kit.examples.orders import ORDERS
from redrive_kit.examples.orders.settings import OrderSettings
from tests.features.conftest import orders, placed
from tests.worker.conftest import drain

KEEP_NOTHING = OrderSettings(keep_days=0.000_000_1)


def kept(app: App, *more: FeatureRule) -> Retention:
    found = retention_of(app.settings.holding(KEEP_NOTHING), [ORDERS])
    return Retention(features=(*more, *found.features))


@pytest.fixture
def app(each_app: App) -> App:
    """On both stores."""
    return each_app


async def parcels(app: App) -> dict[str, int]:
    shown: dict[str, int] = (await (await orders(app)).show("o1")).parcels
    return shown


async def test_what_has_ended_goes_after_its_days(app: App) -> None:
    await placed(app, addresses=("here", "there", "nowhere"))
    await drain(app)
    store = await app.store()
    assert FeatureRule("orders", "prune_parcels", 30.0) in retention_of(app.settings, app.features).features
    await store.upkeep("prune", retention_of(app.settings, app.features))
    assert await parcels(app) == {"completed": 2, "failed": 1}
    late = App(settings=app.settings.holding(KEEP_NOTHING), features=[ORDERS])
    await late.worker(store).duties["prune"].run(store, "w1", lambda: False)
    assert await parcels(app) == {"failed": 1}, "one that is failed may be retried"


async def test_in_pieces(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sqlite, postgres):
        monkeypatch.setattr(module, "ROWS_PER_PIECE", 2)
    monkeypatch.setattr(upkeep, "MOST_PIECES_PER_PRUNE", 2)
    await placed(app, addresses=("a", "b", "c", "d", "e", "nowhere"))
    await drain(app)
    for left in (1, 0):
        await (await app.store()).upkeep("prune", kept(app))
        assert (await parcels(app)).get("completed", 0) == left


async def test_a_statement_that_is_refused_keeps_nobody_elses_rows(app: App) -> None:
    await placed(app)
    await drain(app)
    with pytest.raises(RedriveError):
        await (await app.store()).upkeep("prune", kept(app, FeatureRule("orders", "no_such_statement", 1.0)))
    with pytest.raises(RedriveError, match="no order 'o1'"):
        await parcels(app)
