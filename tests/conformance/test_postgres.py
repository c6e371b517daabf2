"""The PostgreSQL store keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from redrive.testing.conformance import *  # noqa: F403
from tests.conformance.harness_postgres import PostgresHarness

pytestmark = pytest.mark.anyio


@pytest.fixture
async def harness(emptied_postgres_url: str) -> AsyncIterator[PostgresHarness]:
    harness = PostgresHarness(emptied_postgres_url)
    yield harness
    await harness.close()
