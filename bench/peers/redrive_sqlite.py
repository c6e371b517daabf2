"""redrive on SQLite: WAL, synchronous FULL, across processes."""

from __future__ import annotations

from typing import ClassVar

from bench.peers.redrive_postgres import Adapter as OnPostgres


class Adapter(OnPostgres):
    name: ClassVar[str] = "redrive-sqlite"
    backend: ClassVar[str] = "sqlite"
    usual_rate: ClassVar[int] = 25_000
