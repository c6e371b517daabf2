"""The PostgreSQL store keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from redrive_kit.conformance import *  # noqa: F403
from redrive_kit.conformance.harness import FEATURES
from tests.conformance.harness_postgres import PostgresHarness
from tests.databases import database_for

pytestmark = pytest.mark.anyio


@pytest.fixture
async def harness(kept_sessions: None, request: pytest.FixtureRequest) -> AsyncIterator[PostgresHarness]:
    harness = PostgresHarness(database_for(request, FEATURES), FEATURES)
    yield harness
    await harness.close()
