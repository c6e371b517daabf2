"""The harness of tests about PostgreSQL alone; the suites of the stores bring their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.conformance.harness_postgres import PostgresHarness

COUNTING = ("TestCost", "TestInvariants")  # by functions of their own


def database_for(request: pytest.FixtureRequest) -> str:
    """The URL of a database for a test of the store. Whoever counts rows must not meet the dead ones of earlier tests:
    they stay visible in an index for as long as any snapshot is older, that of an autoanalyze for example."""
    counts = "measure" in request.function.__code__.co_names or (request.cls and request.cls.__name__ in COUNTING)
    url: str = request.getfixturevalue("postgres_url" if counts else "emptied_postgres_url")
    return url


@pytest.fixture
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[PostgresHarness]:
    harness = PostgresHarness(database_for(request))
    yield harness
    await harness.close()
