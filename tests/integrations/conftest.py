"""An application, its database with a business table, and somebody who looks at it from outside."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive import App, Context
from redrive.settings import Options
from tests.databases import Databases
from tests.integrations.callers import CALLERS, FEW, KINDS, Caller

BUSINESS = "create table business (note text)"
EMPTY = "truncate business, redrive.task, redrive.history, redrive.idempotency_key, redrive.total, redrive.total_delta"
COUNTS = "select coalesce(sum(queued), 0), coalesce(sum(delayed), 0) from "


@dataclass
class Outside:
    """Only what is committed. ``address`` is what drivers connect to."""

    app: App
    address: str
    sqlite: bool

    def ask(self, sql: str) -> list[Any]:
        connect: Any = sqlite3.connect if self.sqlite else psycopg.connect
        with connect(self.address) as connection:
            cursor = connection.execute(sql)
            found: list[Any] = cursor.fetchall() if cursor.description else []
        connection.close()
        return found

    def table(self, name: str) -> str:
        return f"redrive_{name}" if self.sqlite else f"redrive.{name}"

    @property
    def tasks(self) -> list[str]:
        return [str(row[0]) for row in self.ask(f"select id from {self.table('task')} order by position, id")]

    @property
    def keys(self) -> int:
        return int(self.ask(f"select count(*) from {self.table('idempotency_key')}")[0][0])

    @property
    def totals(self) -> tuple[int, int]:
        """Queued and delayed."""
        queued, delayed = self.ask(COUNTS + self.table("v_counts"))[0]
        return int(queued), int(delayed)

    @property
    def business(self) -> list[str]:
        return [row[0] for row in self.ask("select note from business")]

    def work(self) -> list[Any]:
        """Run a worker until nothing is left; answers the payloads its handler saw."""

        async def until_empty() -> None:
            try:
                await self.app.run_worker(Options(stop_when_empty=True, sleep=0.05))
            finally:
                await self.app.close()

        seen.clear()
        asyncio.run(until_empty())
        return list(seen)


seen: list[Any] = []


def make_app(url: str) -> App:
    app = App(url)

    @app.task("SHIP")
    async def ship(ctx: Context, order: int, note: str = "") -> None:
        seen.append({"order": order, "note": note})

    @app.task("OTHER")
    async def other(ctx: Context) -> None:
        seen.append(None)

    return app


@pytest.fixture(scope="session")
def shop(databases: Databases) -> Iterator[str]:
    """The name of a database that these tests share: making one takes longer than most of them."""
    with databases.fresh() as name:
        with psycopg.connect(databases.url(name)) as connection:
            connection.execute(BUSINESS)
        yield name


@pytest.fixture
def on_postgres(databases: Databases, shop: str) -> Outside:
    url = databases.url(shop)
    with psycopg.connect(url) as connection:
        connection.execute(EMPTY)
    return Outside(make_app(url), url, sqlite=False)


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Outside:
    path = tmp_path / "app.db"
    app = make_app(f"sqlite:///{path}")

    async def migrate() -> None:
        await app.store()
        await app.close()

    asyncio.run(migrate())
    outside = Outside(app, str(path), sqlite=True)
    outside.ask(BUSINESS)
    return outside


def name_of(kind: type[Caller]) -> str:
    return kind.__name__


# For a test that goes the whole way: on every kind of connection, in every run.
ALL_CALLERS = pytest.mark.parametrize("caller", CALLERS, indirect=True, ids=name_of)
EACH_KIND = pytest.mark.parametrize("caller", KINDS, indirect=True, ids=name_of)


@pytest.fixture(params=FEW, ids=name_of)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    kind: type[Caller] = request.param
    outside: Outside = request.getfixturevalue(f"on_{kind.store}")
    yield kind(outside.address, outside.app)


@pytest.fixture
def outside(request: pytest.FixtureRequest, caller: Caller) -> Outside:
    found: Outside = request.getfixturevalue(f"on_{caller.store}")
    return found
