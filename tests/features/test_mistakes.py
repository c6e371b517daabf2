"""What somebody who writes a feature gets wrong is said in one line, with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.cli.support.loading import Loaded
from redrive.cli.support.up_process import _hints
from redrive.errors import ConfigError, SchemaError
from redrive.feature import Feature
from redrive.features import load
from redrive.stores import schema
from redrive_kit.examples.orders import ORDERS

NUMBERS = count(1)  # modules stay: each test imports one of its own
STATEMENTS = "-- personal: none\nselect 0\n\n-- erase: nothing\ndelete from {table} where false\n"
TABLES = {"sqlite": "redrive_{name}_letter", "postgres": "redrive.{name}_letter"}


class Package:
    """The folder of a feature with one table, as a person would write it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder / name, name
        for dialect, table in TABLES.items():
            table = table.format(name=name)
            self.write(f"migrations/{dialect}/0001_letters.up.sql", f"create table {table} (id text);\n")
            self.write(f"migrations/{dialect}/0001_letters.down.sql", f"drop table {table};\n")
            self.write(f"{dialect}.sql", STATEMENTS.format(table=table))
        self.write("__init__.py", "")

    def write(self, file: str, text: str) -> None:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        schema.load.cache_clear()

    @property
    def feature(self) -> Feature:
        return Feature(self.name, self.name)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Package(tmp_path, f"made{next(NUMBERS)}")
    schema.load.cache_clear()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/mistakes.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


async def test_a_step_that_was_run_is_put_back_and_not_the_database_thrown_away(url: str, package: Package) -> None:
    app = App(url, features=[package.feature])
    assert f"{package.name}/0001_letters" in await app.migrate()
    await app.close()
    for dialect in TABLES:
        package.write(f"migrations/{dialect}/0001_letters.up.sql", "select 1;\n")
    app = App(url, features=[package.feature])
    with pytest.raises(SchemaError, match=f"another {package.name}/0001_letters") as refused:
        await app.migrate()
    assert refused.value.hint and f"put {package.name}/0001_letters back" in refused.value.hint
    await app.close()


@pytest.mark.parametrize("half", ["up", "down"])
async def test_a_step_without_its_other_half(package: Package, half: str) -> None:
    (package.folder / f"migrations/sqlite/0001_letters.{half}.sql").unlink()
    with pytest.raises(SchemaError, match=f"0001_letters of {package.name} has no '{half}'") as refused:
        await App("sqlite://", features=[package.feature]).migrate()
    assert refused.value.hint == f"write migrations/sqlite/0001_letters.{half}.sql"


@pytest.mark.parametrize("made", ["letters", 'redrive."letters"', "if not exists redrive_lettersx", "redrive.other"])
@pytest.mark.parametrize("dialect", TABLES)
async def test_a_table_that_is_not_named_after_its_feature(package: Package, dialect: str, made: str) -> None:
    package.write(f"migrations/{dialect}/0001_letters.up.sql", f"-- create table one\nCREATE TABLE {made} (id text);\n")
    with pytest.raises(SchemaError, match=f"{package.name}/0001_letters makes the table .*not named after") as refused:
        schema.lines_of((), None, [package.feature], dialect)
    table = TABLES[dialect].format(name=package.name)
    assert refused.value.hint == f"call it {table.removesuffix('_letter')}, or {table.removesuffix('letter')}…"


@pytest.mark.parametrize("lacking", TABLES)
def test_a_statement_that_only_one_database_has(package: Package, lacking: str) -> None:
    (other,) = set(TABLES) - {lacking}
    text = (package.folder / f"{other}.sql").read_text()
    package.write(f"{other}.sql", f"{text}\n-- late: those that are\nselect 1\n")
    for url in ("sqlite:///:memory:", "postgresql://nobody@127.0.0.1:1/nothing"):
        with pytest.raises(ConfigError, match=f"{lacking}.sql of {package.name} has no statement 'late'"):
            App(url, features=[package.feature])


def test_a_feature_of_one_module_has_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "greetings_alone.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    alone = Feature("greetings", "greetings_alone", react=lambda *_: None)
    for url in ("sqlite:///:memory:", "postgresql://nobody@127.0.0.1:1/nothing"):
        assert alone in App(url, features=[alone]).features


@pytest.mark.parametrize("given", [ORDERS, "orders", ["orders"], [ORDERS, None]])
def test_features_that_are_no_list_of_features(given: Any) -> None:
    with pytest.raises(ConfigError, match="are a list of Feature values, not") as refused:
        App("sqlite:///:memory:", features=given)
    assert refused.value.hint and "features=[" in refused.value.hint


def test_a_name_that_its_module_does_not_have() -> None:
    with pytest.raises(ConfigError, match=r"redrive_kit\.examples\.orders\.service has no 'Shopp'"):
        load("redrive_kit.examples.orders.service:Shopp")


@pytest.mark.parametrize("brought", [True, False])
def test_the_banner_names_the_application_where_its_tasks_need_it(brought: bool) -> None:
    app = App("sqlite:///shop.db", features=[ORDERS] if brought else [])
    (retry,) = [line for line in _hints(Loaded(app, "shop:app"), []) if " retry " in line]
    assert (" --app shop:app " in retry) is brought
