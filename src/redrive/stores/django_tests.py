"""Keeps tests of a Django project out of its own databases.

Django's test runner, and pytest-django, give each entry of ``DATABASES`` another name while tests run. An application
has its URL from elsewhere and would go on with the database of before: tests would leave tasks there, and workers run
them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from redrive.errors import ConfigError
from redrive.stores import is_sqlite
from redrive.stores.postgres.place import place
from redrive.stores.sqlite.url import parse as parse_sqlite

_names: dict[str, str] = {}  # of the databases, by alias, as the settings have them


def in_django() -> bool:
    """Returns whether this is a process of a Django project, as far as redrive has seen its settings."""
    return bool(_names)


def remember_names() -> None:
    """Notes what the project's databases are called, before tests give them other names."""
    if (conf := sys.modules.get("django.conf")) is not None and conf.settings.configured:
        for alias, database in conf.settings.DATABASES.items():
            _names.setdefault(alias, str(database.get("NAME") or ""))


def database_of_tests(url: str) -> str | None:
    """Returns the alias of the database that this URL names, if tests use another one in its place; None otherwise."""
    if not _names:
        return None
    from django.conf import settings

    changed = [alias for alias, name in _names.items() if str(settings.DATABASES[alias].get("NAME")) != name]
    return next((alias for alias in changed if _is_named(url, settings.DATABASES[alias], _names[alias])), None)


def connection_in_tests(url: str) -> Any | None:
    """Returns the thread's Django connection to the database that stands in for the one of ``url`` while tests run."""
    alias = database_of_tests(url)
    if alias is None:
        return None
    from django.db import connections

    return connections[alias]


def refuse_in_tests(url: str) -> None:
    """Refuses to open a database that tests do not use."""
    if (alias := database_of_tests(url)) is not None:
        raise ConfigError(
            f"tests run, and this application's URL names the database of DATABASES[{alias!r}], which they do not use",
            hint="send.enqueue_sync(…) and app.sync.enqueue(…) write to the test's database; for the rest use "
            "redrive.testing.using(app), or give the application a database of its own while tests run",
        )


def _is_named(url: str, database: dict[str, Any], name: str) -> bool:
    engine = str(database.get("ENGINE"))
    if is_sqlite(url):
        known = parse_sqlite(url)
        return "sqlite" in engine and not known.memory and Path(known.path).resolve() == Path(name).resolve()
    from redrive.stores.postgres.url import parse as parse_postgres

    return "postgresql" in engine and parse_postgres(url).place == place(
        database.get("HOST"), database.get("PORT") or None, name
    )
