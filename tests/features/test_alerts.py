"""Rules that a feature brings: they fire, and are known by name wherever redrive's own are."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.errors import ConfigError, InvalidInput, WrongSetting
from redrive.feature import AlertRule, Feature, Finding, Level, Operator, Settings, Store, Unit
from redrive.kernel.alerts.thresholds import Limits, Thresholds
from redrive.observe.prometheus_rules import rule_file
from redrive.ops.alerts.own_rules import all_more_rules
from redrive.ops.duties import duties_of
from redrive.ops.fleet_metrics import samples_of
from redrive.settings import load_settings
from redrive.settings.rules import AlertSettings
from redrive_kit.examples.orders import ORDERS
from redrive_kit.examples.orders.alerts import ALERTS
from redrive_kit.examples.orders.settings import OrderSettings
from tests.api.conftest import served
from tests.console.conftest import console, page
from tests.features.conftest import ANN, placed

LATE = OrderSettings(late_hours=0, frozen_limit=0)


@pytest.fixture
async def late(app: App) -> AsyncIterator[App]:
    """An application in whose eyes every order is late."""
    await placed(app)
    app = App(settings=app.settings.holding(LATE), features=[ORDERS])
    yield app
    await app.close()


async def evaluate(app: App, **more: Any) -> Operator:
    """Does a round as a worker does, and returns who can look at it."""
    settings = app.settings.with_values(**more)
    store = await app.store()
    [duty] = [one for one in duties_of(settings, features=app.features) if one.name == "alerts"]
    await duty.run(store, "w1", lambda: False)
    return await app.operator(ANN)


def brought(*rules: AlertRule, **more: Any) -> Feature:
    return Feature("shelf", "tests.features", alerts=rules, **more)


async def test_a_number_and_findings_become_alerts(late: App) -> None:
    shown = await (await evaluate(late)).alerts.current()
    [fires] = [one for one in shown.firing if one.rule.startswith("orders_")]
    assert (fires.rule, fires.level, fires.value) == ("orders_frozen", Level.CRITICAL, 1.0)
    assert fires.text == "money of customers that is held by orders that do not move: 1 (> 0)"
    assert fires.fix.startswith("redrive orders show")
    [waits] = [one for one in shown.pending if one.rule.startswith("orders_")]
    assert (waits.rule, waits.value) == ("orders_late", 1.0), "of findings, and it has to hold for a while"


async def test_it_ends_by_the_features_own_threshold(app: App) -> None:
    await placed(app)
    shown = await (await evaluate(app)).alerts.current()
    assert not [one for one in (*shown.firing, *shown.pending) if one.rule.startswith("orders_")]


async def test_it_is_silenced_by_name_before_it_fires(late: App) -> None:
    operator = await late.operator(ANN)
    assert {"orders_late", "orders_frozen"} <= {*operator.alerts.rules}
    await operator.alerts.silence("orders_frozen", span="1h", reason="known")
    shown = await (await evaluate(late)).alerts.current()
    assert [one.silence is not None for one in shown.firing if one.rule == "orders_frozen"] == [True]
    with pytest.raises(InvalidInput, match="no rule"):
        await operator.alerts.silence("orders_lost", span="1h", reason="known")


async def test_who_does_not_know_the_feature_sees_and_silences_it(late: App) -> None:
    await evaluate(late)
    stranger = App(settings=load_settings(url=late.settings.url, log_format="off"))
    operator = await stranger.operator(ANN)
    assert (await operator.alerts.silence("orders_frozen", span="1h", reason="known")).rule == "orders_frozen"
    assert "orders_frozen" in [one.rule for one in (await operator.alerts.current()).firing]
    await stranger.close()


async def test_it_can_be_off(late: App) -> None:
    off = AlertSettings(Limits(Thresholds(off=["orders_frozen"])))
    shown = await (await evaluate(late, alerts=off)).alerts.current()
    assert "orders_frozen" not in [one.rule for one in shown.firing]
    settings = late.settings.with_values(alerts=off)
    assert "RedriveOrdersFrozen" not in rule_file(off.limits, "", ["main"], all_more_rules(settings, late.features))


async def test_doctor_tells_the_number_and_what_fires(late: App) -> None:
    told = [(one.code, one.text) for one in await (await evaluate(late)).health.examine()]
    said = "money of customers that is held by orders that do not move"
    assert ("own_query", f"{said}: 1; alert at > 0") in told
    assert ("orders_frozen", f"{said}: 1 (> 0)") in told
    # The other one follows from findings, which say more than their number.
    assert [code for code, _ in told].count("orders_late") == 1
    assert not [text for code, text in told if code == "own_query" and "parcels do not move" in text]


async def test_prometheus_has_it_by_what_the_product_found(late: App) -> None:
    rules = rule_file(Limits(), "", ["main"], all_more_rules(late.settings, late.features))
    assert "- alert: RedriveOrdersFrozen" in rules
    assert json.dumps(ALERTS[1].fix) in rules
    await evaluate(late)
    fires = samples_of(await (await late.store()).figures())["redrive_fleet_alerts_firing"]
    assert ("orders_frozen", "", "critical") in fires


async def test_faces_show_it_with_its_own_runbook(app: App) -> None:
    async def full(store: Store, settings: Settings) -> float:
        return 90.0

    rule = AlertRule("shelf_full", "how full", full, 60, unit=Unit.SECONDS, runbook="https://wiki/shelf")
    own = App(settings=app.settings, features=[ORDERS, brought(rule)])
    await evaluate(own)
    async with served(own) as client:
        found = (await client.get("/api/alerts")).json()
        [shown] = [one for one in found["firing"] if one["rule"] == "shelf_full"]
        assert (shown["runbook"], shown["text"]) == ("https://wiki/shelf", "how full: 90 s (> 60 s)")
    async with console(own) as client:
        text = await page(client, "/alerts")
        assert "https://wiki/shelf" in text
        assert "<option>shelf_full</option>" in text
    await own.close()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (InvalidInput("no such shelf"), "no such shelf"),
        (KeyError("somebody@example.com"), "KeyError"),
        ("much", "its feature answers with a str, and not with a number"),
    ],
)
async def test_one_that_cannot_look_says_so_and_hides_nothing(app: App, fault: Any, said: str) -> None:
    async def broken(store: Store, settings: Settings) -> float:
        if isinstance(fault, Exception):
            raise fault
        value: float = fault
        return value

    async def nothing(store: Store, settings: Settings) -> None:
        return None

    async def full(store: Store, settings: Settings) -> float:
        return 1

    rules = (AlertRule("shelf_a", "", broken), AlertRule("shelf_b", "", nothing), AlertRule("shelf_c", "c", full))
    own = App(settings=app.settings, features=[brought(*rules)])
    shown = await (await evaluate(own)).alerts.current()
    told = {one.rule: one.text for one in shown.firing if one.rule.startswith("shelf")}
    assert told == {"shelf_a": f"shelf_a cannot be watched: {said}", "shelf_c": "c: 1 (> 0)"}
    await own.close()


async def nobody(store: Store, settings: Settings) -> list[Finding]:
    return []


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (AlertRule("full", ""), "is named shelf_"),
        (AlertRule("shelf_full", "", op="=>"), "op is one of"),
        (AlertRule("shelf_full", "", level=Level.NOTE), "warning or critical"),
    ],
)
def test_what_cannot_be_is_refused_at_once(rule: AlertRule, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        brought(rule, examine=nobody)


def test_one_without_look_and_findings_is_refused() -> None:
    with pytest.raises(ConfigError, match="it needs look"):
        brought(AlertRule("shelf_full", ""))
    with pytest.raises(ConfigError, match="two alerts"):
        brought(AlertRule("shelf_full", ""), AlertRule("shelf_full", ""), examine=nobody)


def test_off_knows_the_rules_of_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "redrive.toml"
    file.write_text('[alerts.thresholds."*"]\noff = ["orders_late"]')
    assert load_settings(features=[ORDERS]).alerts.limits.every.off == ["orders_late"]
    # Without an application nobody can tell whose it is; with one that does not bring it, it is a mistake.
    assert load_settings(features=[], bare=True).alerts.limits.every.off == ["orders_late"]
    with pytest.raises(WrongSetting, match="'orders_late' is not known"):
        load_settings(features=[])
    file.write_text('[alerts.thresholds."*"]\noff = ["orders_lat"]')
    with pytest.raises(WrongSetting, match=r"thresholds\.\*\.off: .*did you mean orders_late"):
        load_settings(features=[ORDERS], bare=True)
    file.write_text('[alerts.orders_late]\nquery = "select 1"')
    with pytest.raises(WrongSetting, match=r"orders_late: it is the name of a rule of a feature"):
        load_settings(features=[ORDERS])


def test_nobody_adds_to_the_rules_of_all_applications() -> None:
    with pytest.raises(TypeError):
        load_settings().alerts.own["mine"] = None  # type: ignore[index]
