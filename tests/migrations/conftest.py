"""Tests of redrive's own schema: their databases have no tables of features."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.databases import Databases


@pytest.fixture
def database(databases: Databases) -> Iterator[str]:
    with databases.emptied(databases.store) as name:
        yield name


@pytest.fixture(autouse=True)
def each_step(sqlite_step_by_step: None) -> None:
    """Steps are what is tested here."""
