"""An application on both stores, and the ledger as each role sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redrive import App
from redrive.ledger.service import Ledger
from redrive.ops.access import Caller, Role
from redrive.settings import load_settings


@pytest.fixture(params=["sqlite", "postgres"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/redrive.db" if sqlite else request.getfixturevalue("postgres_url")
    app = App(settings=load_settings(url=url, log_format="off"))
    await app.migrate()
    yield app
    await app.close()


async def ledger_of(app: App, role: Role = Role.ADMIN, name: str = "ann") -> Ledger:
    return (await app.operator(Caller(name, role))).of(Ledger)
