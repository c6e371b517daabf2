"""Removes secrets from URLs: only what was recognised as harmless is shown.

Nothing here looks for a secret and removes it. A part is shown because it has the form of a host, a name or a path, in
a URL that was understood as a whole; of any other, the scheme is shown, if it is one that is known, or nearly.
"""

from __future__ import annotations

import difflib
import re

HIDDEN = "…"
# What people may write in front of a URL. Others are not shown: a password may stand there as well.
SCHEMES = frozenset(
    {
        "sqlite",
        "postgresql",
        "postgres",
        "pgsql",
        "psql",
        "postgis",
        "mysql",
        "mariadb",
        "mssql",
        "oracle",
        "jdbc",
        "odbc",
        "redis",
        "rediss",
        "valkey",
        "mongodb",
        "amqp",
        "amqps",
        "http",
        "https",
        "file",
        "s3",
        "duckdb",
        "cockroachdb",
        "sqlserver",
        "memory",
    }
)
DRIVERS = frozenset(
    {
        "psycopg",
        "psycopg2",
        "psycopg2cffi",
        "psycopg_async",
        "asyncpg",
        "pg8000",
        "aiosqlite",
        "pysqlite",
    }
)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9]{0,20})(?:\+([A-Za-z0-9_]{1,20}))?:")
_WRITTEN_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+]{0,20})://")
_NAME = re.compile(r"[\w.-]{1,80}\Z")
_PATH = re.compile(r"(?:[A-Za-z]:)?[\w./\\ +~,()-]*\Z")


def scheme_of(url: str) -> tuple[str, str]:
    """Returns the scheme and driver of a URL in lower case, each empty when there is none that is known."""
    found = _SCHEME.match(url)
    scheme, driver = (found[1].lower(), (found[2] or "").lower()) if found else ("", "")
    return scheme if scheme in SCHEMES else "", driver if driver in DRIVERS else ""


def shown_scheme(url: str) -> str:
    """Returns all that is shown of a URL that cannot be understood."""
    scheme = scheme_of(url)[0] or _nearly_known(url)
    return f"{scheme}:{HIDDEN}" if scheme else HIDDEN


def _nearly_known(url: str) -> str:
    """Returns a scheme that is a misspelling of a known one: ``sqlite3://``."""
    found = _WRITTEN_SCHEME.match(url)
    scheme = found[1].lower() if found else ""
    return scheme if difflib.get_close_matches(scheme, SCHEMES, 1, 0.8) else ""


def shown_name(name: str) -> str:
    """Returns a user, database or the like as it may be shown."""
    return name if _NAME.match(name) else HIDDEN


def shown_path(path: str) -> str:
    """Returns a path as it may be shown; an @ or = may be part of something else."""
    return path if _PATH.match(path) else HIDDEN
