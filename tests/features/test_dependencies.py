"""What features need of a store, and what else they depend on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from redrive import App
from redrive.errors import ConfigError
from redrive.feature import Dependency, Feature, Need, Settings, Store
from redrive.kernel.ports.store import Capabilities
from redrive.stores import make_store
from redrive.stores.features import check_needs, needs_of
from redrive.worker import readiness as health
from redrive_kit.conformance.probe import PROBE
from redrive_kit.examples.orders import ORDERS
from tests.api.conftest import served

LATELY = datetime.now(UTC)


def test_what_a_feature_needs() -> None:
    assert needs_of(ORDERS) == set(Need) and needs_of(PROBE) == {Need.REACTIONS, Need.TABLES}
    assert needs_of(Feature("plain", "tests.features")) == set()
    assert set(Need) <= set(Capabilities.__dataclass_fields__)


def test_a_store_that_cannot_do_it_refuses_the_feature() -> None:
    for missing in Need:
        less = Capabilities(**{missing.value: False})
        with pytest.raises(ConfigError, match=r"the feature 'orders' needs .*, which redis:// does not have"):
            check_needs([ORDERS], less, "redis://")
        check_needs([Feature("plain", "tests.features")], less, "redis://")
    for url in ("sqlite:///:memory:", "postgresql://localhost/x"):
        capabilities = make_store(url, [ORDERS]).capabilities
        assert all(getattr(capabilities, need) for need in Need)


async def sinks(store: Store, settings: Settings) -> Sequence[Dependency]:
    return SINKS


SINKS: list[Dependency] = []


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        (Dependency("carrier"), None),
        (Dependency("carrier", ok=False), "carrier: not reachable"),
        (Dependency("carrier", ok=False, detail="refused the login"), "carrier: refused the login"),
        (Dependency("carrier", last_success=LATELY, fresh_for=600), None),
        (Dependency("carrier", fresh_for=60), "carrier: it has not succeeded yet"),
        (
            Dependency("carrier", last_success=LATELY - timedelta(hours=10), fresh_for=600),
            "carrier: its last success was 360",
        ),
    ],
)
async def test_readyz_tells_of_dependencies(tmp_path: object, sink: Dependency, said: str | None) -> None:
    if sink.last_success is not None:  # seen from when the test runs
        sink = replace(sink, last_success=sink.last_success + (datetime.now(UTC) - LATELY))
    SINKS[:] = [Dependency("other"), sink]
    app = App(f"sqlite:///{tmp_path}/x.db", features=[Feature("sinks", "tests.features", dependencies=sinks)])
    async with served(app) as client:
        answer = await client.get("/readyz")
    assert answer.status_code == (200 if said is None else 503)
    assert said is None or said in answer.json()["reasons"][0]
    assert [each["ok"] for each in answer.json()["dependencies"]] == [True, True, said is None], "the store is first"
    await app.close()


async def test_one_that_cannot_say_is_not_ready(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(store: Store, settings: Settings) -> Sequence[Dependency]:
        await asyncio.sleep(60)
        return []

    async def raises(store: Store, settings: Settings) -> Sequence[Dependency]:
        raise ValueError("secret")

    monkeypatch.setattr(health, "DEPENDENCY_TIMEOUT_S", 0.05)
    features = [
        Feature("slow", "tests.features", dependencies=hangs),
        Feature("bad", "tests.features", dependencies=raises),
    ]
    app = App(f"sqlite:///{tmp_path}/x.db", features=features)
    answer = await health.readiness(app, None)
    assert not answer["ready"] and len(answer["reasons"]) == 2 and "secret" not in str(answer)
    await app.close()
