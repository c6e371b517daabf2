"""Settings of a feature: read, checked, listed and warned of like redrive's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.cli.main import run
from redrive.errors import ConfigError
from redrive.kernel.feature import Feature
from redrive.settings import FeatureSettings, effective, load_settings, misspelt, setting
from redrive_kit.examples.orders import ORDERS
from redrive_kit.examples.orders.settings import OrderSettings
from tests.commands import redrive

MEMORY = "sqlite:///:memory:"


class ShopSettings(FeatureSettings):
    key: str | None = setting("SHOP_KEY", None, repr=False)


SHOP = Feature("shop", __package__, settings=ShopSettings)


@pytest.fixture(autouse=True)
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "redrive.toml"


def keep_days(**given: Any) -> float:
    return App(MEMORY, features=[ORDERS], **given).settings.of(OrderSettings).keep_days


def test_the_environment_wins_over_the_file_and_that_over_the_default(
    monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    assert keep_days() == 30
    file.write_text("orders_keep_days = 7\n")
    assert keep_days() == 7
    file.write_text("[orders]\nkeep_days = 8\n")
    assert keep_days() == 8
    monkeypatch.setenv("ORDERS_KEEP_DAYS", "9")
    assert keep_days() == 9
    given = load_settings(url=MEMORY, features=[ORDERS]).holding(OrderSettings(keep_days=10))
    assert keep_days(settings=given) == 10
    assert given.of(OrderSettings).late_hours == 24


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[orders]\nkeep_days = 0\n",
            r"ORDERS_KEEP_DAYS: it has to be more than 0 \(redrive\.toml, line 2, \[orders\]\)",
        ),
        ("[orders]\nkeep_day = 7\n", r"unknown settings: orders\.keep_day \(did you mean keep_days\?\)"),
        ("[order]\nkeep_days = 7\n", r"unknown settings: order \(did you mean orders\?\)"),
        ("orders_keep_day = 7\n", r"unknown settings: orders_keep_day \(did you mean orders_keep_days\?\)"),
        ("orders_keep_days = 7\n[orders]\nkeep_days = 8\n", "has keep_days of orders twice"),
        ("orders = 7\n", r"orders is a table, \[orders\]"),
    ],
)
def test_what_cannot_be_used_is_refused_at_the_start(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        keep_days()


def test_a_process_that_knows_no_application_leaves_its_table_alone(file: Path) -> None:
    file.write_text("[orders]\nkeep_days = 7\n")
    with pytest.raises(ConfigError, match="unknown settings: orders"):
        App(MEMORY)
    assert load_settings(bare=True).url
    file.write_text("[redrive_triag.x]\nlook = 'y'\n")
    with pytest.raises(ConfigError, match="did you mean redrive_triage"):
        load_settings(bare=True)


def test_they_are_listed_with_their_origin_and_without_secrets(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    file.write_text("[orders]\nkeep_days = 7\n")
    monkeypatch.setenv("ORDERS_LATE_HOURS", "2")
    monkeypatch.setenv("SHOP_KEY", "s3cr3t")
    app = App(MEMORY, features=[ORDERS, SHOP])
    listed = {one.name: one for one in effective(app.settings, app.features)}
    shown = [listed[name] for name in ("ORDERS_KEEP_DAYS", "ORDERS_LATE_HOURS", "ORDERS_REMIND_MINUTES", "SHOP_KEY")]
    assert [(one.value, one.source, one.feature) for one in shown] == [
        ("7", "file", "orders"),
        ("2", "environment", "orders"),
        ("60", "default", "orders"),
        (None, "environment", "shop"),
    ]
    assert "s3cr3t" not in repr(listed) and "s3cr3t" not in repr(app.settings.of(ShopSettings))


def test_a_command_shows_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: Path) -> None:
    file.write_text("redrive_app = 'feature_shop:app'\n[orders]\nkeep_days = 7\n")
    (tmp_path / "feature_shop.py").write_text(
        "from redrive import App\nfrom redrive_kit.examples.orders import ORDERS\napp = App(features=[ORDERS])\n"
    )
    told = redrive("settings", "--changed", cwd=tmp_path, code=0).stdout
    assert [line.split() for line in told.splitlines()[1:]] == [
        ["REDRIVE_APP", "file", "feature_shop:app"],
        ["ORDERS_KEEP_DAYS", "file", "orders", "7"],
    ]


def test_what_is_misspelt_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_KEEP_DAY", "7")
    monkeypatch.setenv("ORDERS_TOTAL", "7")  # somebody else's
    said = "ORDERS_KEEP_DAY is set and is no setting of redrive; did you mean ORDERS_KEEP_DAYS?"
    assert (misspelt([ORDERS]), misspelt([])) == ([said], [])


def test_names_of_others_are_refused() -> None:
    class Ours(FeatureSettings):
        days: int = setting("REDRIVE_ORDER_DAYS", 1)

    class Theirs(FeatureSettings):
        days: int = setting("ORDERS_KEEP_DAYS", 1)

    class Nameless(FeatureSettings):
        days: int = 1

    for kind, said in ((Ours, "begins like"), (Theirs, "and of feature 'orders', too"), (Nameless, "has no name")):
        with pytest.raises(ConfigError, match=said):
            App(MEMORY, features=[ORDERS, Feature("shop", __package__, settings=kind)])
    with pytest.raises(ConfigError, match="belongs to no feature"):
        App(MEMORY).settings.of(OrderSettings)


def test_a_command_says_what_is_misspelt_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        "from redrive import App",
        "from redrive_kit.examples.orders import ORDERS",
        "app = App(features=[ORDERS])",
    ]
    (tmp_path / "misspelt_shop.py").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("ORDERS_KEEP_DAY", "7")
    for more, times in ((), 1), (("--json",), 0):
        assert run(["settings", "--app", "misspelt_shop:app", *more]) == 0
        assert capsys.readouterr().err.count("did you mean ORDERS_KEEP_DAYS?") == times
