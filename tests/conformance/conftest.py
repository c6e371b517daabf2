"""The harness of tests about PostgreSQL alone; the suites of the stores bring their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.conformance.harness_postgres import PostgresHarness


@pytest.fixture
async def harness(emptied_postgres_url: str) -> AsyncIterator[PostgresHarness]:
    harness = PostgresHarness(emptied_postgres_url)
    yield harness
    await harness.close()
