"""The SQLite store keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redrive_kit.conformance import *  # noqa: F403
from redrive_kit.conformance.harness import FEATURES
from tests.conformance.harness_sqlite import SqliteHarness

pytestmark = pytest.mark.anyio


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[SqliteHarness]:
    harness = SqliteHarness(tmp_path / "redrive.db", FEATURES)
    await harness.store.open()
    yield harness
    await harness.close()
