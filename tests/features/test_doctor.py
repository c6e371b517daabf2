"""What a feature finds is among the findings of doctor, of the console's first page and of the API."""

from __future__ import annotations

from redrive import App
from redrive.errors import InvalidInput
from redrive.kernel.diagnosis import Finding, Level
from redrive.kernel.feature import Feature
from redrive.kernel.ports.store import Store
from redrive.settings import Settings
from redrive_kit.examples.orders import ORDERS
from redrive_kit.examples.orders.settings import OrderSettings
from tests.features.conftest import ANN, placed


async def found(app: App, queue: str | None = None) -> dict[str, Finding]:
    return {one.code: one for one in await (await app.operator(ANN)).health.examine(queue)}


async def test_it_is_told_among_the_others(app: App) -> None:
    await placed(app)
    assert "orders_late" not in await found(app)
    late = App(settings=app.settings.holding(OrderSettings(late_hours=0)), features=[ORDERS])
    told = await found(late)
    assert told["orders_late"].text == "order o1 has 1 parcels that do not move"
    assert list(told).index("no_worker") < list(told).index("orders_late") < len(told), "the worst first"
    await late.close()


async def test_one_that_cannot_look_hides_nothing(app: App) -> None:
    async def broken(store: Store, settings: Settings) -> list[Finding]:
        raise InvalidInput("no such shelf")

    async def about_queues(store: Store, settings: Settings) -> list[Finding]:
        return [Finding(Level.NOTE, f"about_{name}", "", about=("queue", name)) for name in ("default", "other")]

    both = [
        Feature("broken", "tests.features", examine=broken),
        Feature("queues2", "tests.features", examine=about_queues),
    ]
    stranger = App(settings=app.settings, features=both)
    told = await found(stranger)
    assert told["feature_examine"].text == "feature broken could not be examined: no such shelf"
    assert {"about_default", "about_other", "no_worker"} <= told.keys()
    await placed(app)
    assert {"about_default", "about_other"} & (await found(stranger, "default")).keys() == {"about_default"}
    await stranger.close()
