"""The harness of tests about PostgreSQL alone; the suites of the stores bring their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.conformance.harness_postgres import PostgresHarness
from tests.databases import database_for


@pytest.fixture
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[PostgresHarness]:
    harness = PostgresHarness(database_for(request))
    yield harness
    await harness.close()
