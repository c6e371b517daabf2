"""Services on both stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from redrive_kit.conformance.harness import Harness
from tests.conformance.harness_postgres import PostgresHarness
from tests.conformance.harness_sqlite import SqliteHarness
from tests.databases import database_for


@asynccontextmanager
async def opened(store: str, request: pytest.FixtureRequest, path: Path) -> AsyncIterator[Harness]:
    made = SqliteHarness(path / "redrive.db") if store == "sqlite" else PostgresHarness(database_for(request))
    await made.store.open()
    yield made
    await made.close()


@pytest.fixture(params=["sqlite", "postgres"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    async with opened(request.param, request, tmp_path) as made:
        yield made
