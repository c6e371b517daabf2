"""Django: ``django.db.connection`` and ``connections[...]``, through Django's own cursors.

So what Django promises about its connections holds here too: a broken ``atomic`` block is refused, query hooks and
``assertNumQueries`` see the statements, and use from a coroutine is turned away.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from redrive.errors import ConfigError, InvalidInput
from redrive.handlers.functions import name_of, runs_on_the_loop
from redrive.integrations import postgres, sqlite
from redrive.integrations.own_commit import MEMORY, OwnCommit
from redrive.kernel.task import Enqueued
from redrive.stores.refusals import migrate_command

P = ParamSpec("P")
R = TypeVar("R")
_PLACE = re.compile(r"\?(\d*)")


def own_connections(function: Callable[P, R]) -> Callable[P, R]:
    """Does for a ``def`` handler what Django does for a request: closes connections that are broken or older than
    ``CONN_MAX_AGE``, before and after it. Each handler thread has connections of its own."""
    if runs_on_the_loop(function):
        raise ConfigError(
            f"own_connections is for def handlers, and {name_of(function)!r} is async def",
            hint="leave it out: Django's a… methods (aget, acreate) use connections of threads of their own",
        )

    @wraps(function)
    def handler(*args: P.args, **kwargs: P.kwargs) -> R:
        from django.db import close_old_connections

        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return handler


def on_connection(connection: Any, own: OwnCommit) -> list[Enqueued]:
    match connection.vendor:
        case "postgresql":
            return _on_postgres(connection, own)
        case "sqlite":
            return _on_sqlite(connection, own)
    raise wrong_database(connection)


def wrong_database(connection: Any) -> InvalidInput:
    return InvalidInput(
        f"the Django connection {connection.alias!r} is to {connection.display_name}; "
        "redrive keeps its tasks in PostgreSQL or SQLite",
        hint="use connections[...] of the database that redrive's URL names",
    )


def _on_postgres(connection: Any, own: OwnCommit) -> list[Enqueued]:
    with connection.cursor() as cursor, postgres.explained(connection.connection, _remedy):
        cursor.execute(*postgres.call(own))
        return postgres.answers(own, cursor.fetchall())


def _on_sqlite(connection: Any, own: OwnCommit) -> list[Enqueued]:
    with connection.cursor() as cursor:

        def execute(sql: str, args: tuple[Any, ...]) -> list[Any]:
            cursor.execute(*_with_format(sql, args))
            found: list[Any] = cursor.fetchall()
            return found

        return sqlite.apply(connection.connection, execute, own, remedy=_remedy)


def _with_format(sql: str, args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Returns a statement of SQLite as Django wants it: placeholders are %s, each with an argument of its own."""
    places = [int(number) - 1 if number else nth for nth, number in enumerate(_PLACE.findall(sql))]
    return _PLACE.sub("%s", sql.replace("%", "%%")), tuple(args[place] for place in places)


def _remedy(url: str) -> str:
    """Returns how redrive's tables come into this project's databases, those of tests among them."""
    from django.apps import apps

    if apps.apps_ready and apps.is_installed(__name__):
        return "run: manage.py migrate (the setting REDRIVE_DATABASE names the database, if it is not 'default')"
    with_django = f'add "{__name__}" to INSTALLED_APPS and run: manage.py migrate'
    return with_django if url == MEMORY else f"run: {migrate_command(url)}, or {with_django}"
