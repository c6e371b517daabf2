"""The harness of whatever store a URL names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from redrive.kernel.feature import Feature
from redrive_kit.conformance.harness import Harness
from tests.conformance.harness_postgres import PostgresHarness
from tests.conformance.harness_sqlite import SqliteHarness


def harness_of(url: str, features: Sequence[Feature] = ()) -> Harness:
    if url.startswith("sqlite"):
        return SqliteHarness(Path(url.removeprefix("sqlite:///")), features=features)
    return PostgresHarness(url, features=features)
