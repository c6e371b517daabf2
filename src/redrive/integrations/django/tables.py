"""Makes redrive's tables through a Django connection, and with ``manage.py migrate``.

Django's test database is made by its migrations alone, and often lives in memory: nothing outside of the process can
put tables there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from redrive.features import features_of
from redrive.integrations.django import wrong_database
from redrive.kernel.feature import Feature
from redrive.stores import check_driver
from redrive.stores.sqlite import migrate as sqlite


def create_tables(connection: Any, features: Iterable[Feature] = ()) -> None:
    """Brings redrive's tables in the database of a Django connection up to date; where they are, nothing is written.

    ``features`` are those of ``App(features=…)``, besides those that are installed."""
    from django.db import transaction

    known = features_of(features)
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        match connection.vendor:
            case "postgresql":
                _on_postgres(cursor, known, _where(connection))
            case "sqlite":
                _on_sqlite(cursor, known, _where(connection))
            case _:
                raise wrong_database(connection)


def _on_postgres(cursor: Any, features: Sequence[Feature], where: str) -> None:
    check_driver()
    from redrive.stores.postgres import migrate as postgres  # not above: a project on SQLite has no asyncpg

    def missing() -> str:
        applied = _rows(cursor, postgres.APPLIED_DIGESTS)
        return postgres.missing_script(applied, _rows(cursor, postgres.FUNCTION_NUMBERS), features, where)

    cursor.execute(postgres.HAS_BOTH_TABLES)
    if not cursor.fetchone()[0]:
        cursor.execute(postgres.CREATE_STEPS_TABLE)
    elif not missing():
        return
    cursor.execute(postgres.LOCK_STEPS)  # another host may have been at it
    cursor.execute(missing() or "select 1")


def _on_sqlite(cursor: Any, features: Sequence[Feature], where: str) -> None:
    cursor.execute(sqlite.HAS_STEPS_TABLE)
    if cursor.fetchone() is None:
        cursor.execute(sqlite.CREATE_STEPS_TABLE)
    for statement in sqlite.missing_statements(_rows(cursor, sqlite.APPLIED_DIGESTS), features, where):
        sqlite.run_statement(cursor, statement)


def _rows(cursor: Any, sql: str) -> list[Any]:
    cursor.execute(sql)
    return list(cursor.fetchall())


def _where(connection: Any) -> str:
    return f"the Django database {connection.alias!r}"
