"""An application, and the ledger as each role sees it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.ledger.service import Ledger
from redrive.ops.access import Caller, Role
from redrive.settings import load_settings

BOTH_STORES = pytest.mark.parametrize("app", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    """On the store that a test names, else on SQLite: what is about statements runs on both (``BOTH_STORES``)."""
    sqlite = getattr(request, "param", "sqlite") == "sqlite"
    url = f"sqlite:///{tmp_path}/redrive.db" if sqlite else request.getfixturevalue("postgres_url")
    app = App(settings=load_settings(url=url, log_format="off"))
    await app.migrate()
    yield app
    await app.close()


async def ledger_of(app: App, role: Role = Role.ADMIN, name: str = "ann") -> Ledger:
    return (await app.operator(Caller(name, role))).of(Ledger)


async def run_sql(app: App, text: str) -> None:
    """Changes the books behind redrive's back."""
    store: Any = await app.store()
    postgres = not app.connections.main.url.startswith("sqlite")
    names = {"entry": "entry", "account": "account", "freeze": "ledger_freeze", "posting": "posting"}
    tables = {name: f"redrive.{table}" if postgres else f"redrive_{table}" for name, table in names.items()}
    old = "clock_timestamp() - interval '25 hours'" if postgres else "(unixepoch() - 25 * 3600) * 1000000"
    written = text.format(**tables, old=old)
    if postgres:
        await store.pool.run(lambda connection: connection.execute(written))
    else:
        path = app.connections.main.url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(written)
            connection.commit()
