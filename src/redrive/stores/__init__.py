"""Makes stores from URLs."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from redrive.errors import ConfigError, WrongSetting
from redrive.stores.features import check_needs
from redrive.stores.postgres import url as postgres_url
from redrive.stores.shown import scheme_of, shown_scheme
from redrive.stores.sqlite import url as sqlite_url

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature
    from redrive.kernel.ports.store import Capabilities, Store

_SCHEMES = "sqlite:///path/to/file.db, sqlite:///:memory:, postgresql://user@host/database"
_POSTGRES = ("postgresql", "postgres")


def make_store(url: str, features: Sequence[Feature] = ()) -> Store:
    """Returns the store a URL names, with the features that this process knows; nothing is opened yet. A feature that
    needs more than it can do is refused."""
    store = _make(url, features)
    check_needs(features, store.capabilities, shown_url(url))
    return store


def _make(url: str, features: Sequence[Feature]) -> Store:
    if is_sqlite(url):
        from redrive.stores.sqlite.store import SqliteStore

        return SqliteStore(url, features)
    if _is_postgres(url):
        check_driver()
        from redrive.stores.postgres.store import PostgresStore

        return PostgresStore(url, features)
    raise _unknown(url)


def check_driver() -> None:
    """Refuses PostgreSQL where its driver is not installed, with what to type."""
    if importlib.util.find_spec("asyncpg") is None:
        raise ConfigError(
            "PostgreSQL needs the asyncpg driver, which is not installed",
            hint="pip install '/path/to/checkout[postgres]'",
        )


@lru_cache(maxsize=16)
def capabilities_of(url: str) -> Capabilities:
    """Returns what the store of a URL can do."""
    return make_store(url).capabilities


def is_sqlite(url: str) -> bool:
    """Returns whether a URL names a SQLite database, whatever driver it adds."""
    return scheme_of(url)[0] == "sqlite"


def shown_url(url: str) -> str:
    """Returns a store's URL without anything secret; of one that cannot be understood, only the scheme."""
    try:
        if is_sqlite(url):
            return sqlite_url.parse(url).shown
        if _is_postgres(url):
            return postgres_url.parse(url).shown
    except ConfigError:
        pass
    return shown_scheme(url)


def _is_postgres(url: str) -> bool:
    return scheme_of(url)[0] in _POSTGRES


def _unknown(url: str) -> WrongSetting:
    hint = f"use one of: {_SCHEMES}"
    if "://" not in url and "=" in url:
        hint = "this looks like key=value pairs: write postgresql://user:password@host:port/database instead"
    elif scheme_of(url)[0] == "jdbc":
        hint = f"leave out jdbc: and {hint}"
    return WrongSetting(f"no store is known for the URL {shown_scheme(url)}", hint=hint)
