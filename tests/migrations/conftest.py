"""Tests of redrive's own schema: their databases have no tables of features."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.databases import Databases


@pytest.fixture
def database(databases: Databases) -> Iterator[str]:
    """A database of this test's own, that nobody else is connected to: others would keep its schema from going."""
    with databases.fresh(template=databases.store.name) as name:
        yield name


@pytest.fixture(autouse=True)
def each_step(sqlite_step_by_step: None) -> None:
    """Steps are what is tested here."""
