"""Keeps tests of a Django project out of its own databases.

Django's test runner, and pytest-django, give each entry of ``DATABASES`` another name while tests run. An application
has its URL from elsewhere and would go on with the database of before: tests would leave tasks there, and workers run
them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from redrive.errors import ConfigError
from redrive.stores import is_sqlite
from redrive.stores.postgres.url import place
from redrive.stores.sqlite.url import parse as parse_sqlite

_names: dict[str, str] = {}  # of the databases, by alias, as the settings have them


def in_django() -> bool:
    """Returns whether this is a process of a Django project, as far as redrive has seen its settings."""
    return bool(_names)


def remember_names() -> None:
    """Notes what the project's databases are called, before tests give them other names."""
    conf = sys.modules.get("django.conf")
    if conf is None or not conf.settings.configured or _names.keys() >= conf.settings.DATABASES.keys():
        return
    databases = {alias: str(database.get("NAME") or "") for alias, database in conf.settings.DATABASES.items()}
    if _tests_have_begun() and (module := os.environ.get("DJANGO_SETTINGS_MODULE")):
        databases = _names_in_settings(module)
    for alias, name in databases.items():
        _names.setdefault(alias, name)


def _tests_have_begun() -> bool:
    """Returns whether the databases may have the names of tests by now, as where a test imports the application."""
    utils = sys.modules.get("django.test.utils")
    return utils is not None and hasattr(utils._TestState, "saved_data")


def _names_in_settings(module: str) -> dict[str, str]:
    """Returns the names of the databases as the settings have them: a fresh process reads them, since Django keeps no
    copy of what tests change."""
    script = (
        "import json; from django.conf import settings; "
        "print('\\n' + json.dumps({alias: str(one.get('NAME') or '') for alias, one in settings.DATABASES.items()}))"
    )
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": module,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    try:
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise ConfigError(
            f"tests run, and {module} could not be read to see which databases are not theirs: {error}",
            hint="add 'redrive.integrations.django' to INSTALLED_APPS, or import the application where tests are found",
        ) from error
    return found


def database_of_tests(url: str) -> str | None:
    """Returns the alias of the database that this URL names, if tests use another one in its place; None otherwise."""
    if not _names or not _tests_have_begun():
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
