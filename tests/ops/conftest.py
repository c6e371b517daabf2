"""Services on both stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redrive.testing.conformance.harness import Harness
from tests.conformance.harness_postgres import PostgresHarness
from tests.conformance.harness_sqlite import SqliteHarness


@pytest.fixture(params=["sqlite", "postgres"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    made: Harness
    if request.param == "sqlite":
        made = SqliteHarness(tmp_path / "redrive.db")
    else:
        made = PostgresHarness(request.getfixturevalue("emptied_postgres_url"))
    await made.store.open()
    yield made
    await made.close()
