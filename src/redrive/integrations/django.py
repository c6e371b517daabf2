"""Django: ``django.db.connection`` and ``connections[...]``, through Django's own cursors.

So what Django promises about its connections holds here too: a broken ``atomic`` block is refused, query hooks and
``assertNumQueries`` see the statements, and use from a coroutine is turned away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redrive.errors import InvalidInput
from redrive.integrations import postgres, sqlite
from redrive.kernel.task import Enqueued, NewTask


def on_connection(connection: Any, tasks: Sequence[NewTask]) -> list[Enqueued]:
    match connection.vendor:
        case "postgresql":
            return _on_postgres(connection, tasks)
        case "sqlite":
            return _on_sqlite(connection, tasks)
    raise InvalidInput(
        f"the Django connection {connection.alias!r} is to {connection.display_name}; "
        "redrive keeps its tasks in PostgreSQL or SQLite",
        hint="use connections[...] of the database that redrive's URL names",
    )


def _on_postgres(connection: Any, tasks: Sequence[NewTask]) -> list[Enqueued]:
    with postgres.explained(), connection.cursor() as cursor:
        cursor.execute(postgres.FORMAT, postgres.params(tasks))
        return postgres.answers(tasks, cursor.fetchall())


def _on_sqlite(connection: Any, tasks: Sequence[NewTask]) -> list[Enqueued]:
    with connection.cursor() as cursor:

        def execute(sql: str, args: tuple[Any, ...]) -> list[Any]:
            cursor.execute(sql.replace("?", "%s"), args)
            found: list[Any] = cursor.fetchall()
            return found

        return sqlite.enqueue(connection.connection, execute, tasks)
