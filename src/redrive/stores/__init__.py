"""Stores, by URL."""

from __future__ import annotations

import importlib.util

from redrive.errors import ConfigError
from redrive.kernel.store import Store

_SCHEMES = "sqlite:///path/to/file.db, sqlite:///:memory:, postgresql://user@host/database"


def make_store(url: str) -> Store:
    """The store a URL names; nothing is opened yet."""
    scheme = url.split(":", 1)[0].lower() if ":" in url else ""
    if scheme == "sqlite":
        from redrive.stores.sqlite.store import SqliteStore

        return SqliteStore(url)
    if scheme in ("postgresql", "postgres"):
        if importlib.util.find_spec("asyncpg") is None:
            raise ConfigError(
                "PostgreSQL needs the asyncpg driver, which is not installed",
                hint="pip install 'redrive[postgres]'",
            )
        from redrive.stores.postgres.store import PostgresStore

        return PostgresStore(url)
    shown = url if "@" not in url else url.split("@", 1)[0].split(":", 1)[0] + "://…"
    raise ConfigError(f"no store is known for the URL {shown!r}", hint=f"use one of: {_SCHEMES}")
