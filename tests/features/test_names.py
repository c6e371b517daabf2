"""Names of features: none that redrive has itself, for a command, an address, a page or a table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

import redrive
from redrive import App, features
from redrive.api.app import make_api
from redrive.cli.root import TARGETS
from redrive.console.mount import ROUTERS
from redrive.console.visitors import HOME
from redrive.errors import ConfigError
from redrive.features import TABLES, TAKEN
from redrive.kernel.feature import Feature
from redrive_kit.examples.orders import ORDERS

STORES = Path(redrive.__file__).parent / "stores"
TABLE = re.compile(r"^create (?:unlogged )?(?:table|view) (?:if not exists )?(?:redrive[._])(\w+)", re.MULTILINE)


def first(path: str, below: str) -> set[str]:
    """The first part of an address below another one, as a feature could be named."""
    name = path.removeprefix(below + "/").partition("/")[0] if path.startswith(below + "/") else ""
    return {name.replace("-", "_")} if re.fullmatch(r"[a-z][a-z_-]*", name) else set()


def test_every_command_address_and_page_is_taken() -> None:
    commands = set(TARGETS)
    pages = [route.path for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    app = App("sqlite:///:memory:")
    paths = [*make_api(app).openapi()["paths"], *pages]
    addresses = set().union(*(first(path, below) for path in paths for below in ("/api", HOME)))
    assert {"audit", "work"} <= commands and {"queues", "task_groups", "sign_in"} <= addresses
    brought = {feature.name for feature in app.features}
    assert sorted((commands | addresses) - TAKEN - brought) == [], "say so in redrive.features"


def test_no_table_of_ours_is_named_like_one_of_a_feature() -> None:
    """A worker's role may write to tables that are named after a feature."""
    text = "".join(path.read_text(encoding="utf-8") for path in STORES.glob("*/migrations/*.up.sql"))
    names = set(TABLE.findall(text))
    assert {"task", "failure_group"} <= names
    assert sorted({name.partition("_")[0] for name in names} - TABLES) == [], "say so in redrive.features"


@pytest.mark.parametrize("name", ["audit", "tasks", "task", "dead_letter", "settings"])
def test_a_feature_of_such_a_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot be named '{name}'"):
        App("sqlite:///:memory:", features=[Feature(name, __package__)])


@pytest.mark.parametrize("name", ["", "Orders", "my-orders", "a.b", "x" * 41, "1st"])
def test_a_name_that_no_table_could_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no name of a feature"):
        Feature(name, __package__)


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two features are named 'orders'"):
        App("sqlite:///:memory:", features=[ORDERS, Feature("orders", __package__)])


def test_one_that_comes_with_redrive_is_named_as_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """It uses what imports this module: a value would be a circle."""
    monkeypatch.setattr(features, "BUILT_IN", ("redrive_kit.examples.orders:ORDERS",))
    features.installed.cache_clear()
    try:
        assert [feature.name for feature in App("sqlite:///:memory:").features] == ["orders"]
    finally:
        monkeypatch.undo()
        features.installed.cache_clear()
