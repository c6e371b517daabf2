"""Servers on this machine for applications that fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.databases import Databases
from tests.failures.corpus.servers import Servers


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    running = Servers()
    yield running
    running.close()


@pytest.fixture(scope="module")
def postgres(databases: Databases) -> Iterator[str]:
    with databases.fresh(empty=True) as name:
        yield databases.url(name)
