"""Enqueueing on PostgreSQL through anybody's driver: one call of ``redrive.enqueue``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID

from redrive.errors import SchemaError, StoreError
from redrive.integrations.causes import causes
from redrive.integrations.missing_tables import Remedy, migrate
from redrive.kernel.task import Enqueued, NewTask
from redrive.stores.postgres import codec
from redrive.stores.sql import statements

NUMBERED = statements("redrive.integrations", "postgres.sql")["enqueue"]
FORMAT = re.sub(r"\$\d+", "%s", NUMBERED)

# invalid_schema_name, undefined_function, undefined_table, undefined_column
_SCHEMA = ("3F000", "42883", "42P01", "42703")
_PRIVILEGE = "42501"


def params(tasks: Sequence[NewTask]) -> tuple[Any, ...]:
    """Arrays of text and numbers only: callers teach their connections other ways to send UUIDs, JSON and times."""
    return tuple(column and [_plain(value) for value in column] for column in codec.columns(tasks))


def _plain(value: Any) -> Any:
    match value:
        case UUID():
            return str(value)
        case datetime():
            return value.isoformat()
    return value


def answers(tasks: Sequence[NewTask], known: Iterable[Sequence[Any]]) -> list[Enqueued]:
    """``known`` are the rows of ``redrive.enqueue``: only tasks whose key already named another one."""
    existing = {id: Enqueued(UUID(other), created=False, conflict=conflict) for id, other, conflict in known}
    return [existing.get(str(task.id)) or Enqueued(task.id) for task in tasks]


@contextmanager
def explained(driver_connection: Any, remedy: Remedy = migrate) -> Iterator[None]:
    """Say what to do when redrive's schema is missing or out of bounds; all other errors are the caller's own."""
    try:
        yield
    except Exception as error:
        refusal = _refusal(error, lambda: remedy(_url(driver_connection)))
        if refusal is None:
            raise
        raise refusal from error


def _refusal(error: Exception, remedy: Callable[[], str]) -> StoreError | None:
    for cause in causes(error):
        # psycopg2 has another name for it.
        state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if state in _SCHEMA:
            return SchemaError(
                f"this connection's database has no usable redrive schema: {cause}",
                hint=remedy(),
            )
        if state == _PRIVILEGE:
            return StoreError(
                f"this connection's role may not enqueue: {cause}", hint="run: redrive migrate --grant-producer ROLE"
            )
    return None


def _url(driver_connection: Any) -> str:
    """Returns the URL of this connection's database, without a password; empty where its driver (asyncpg) does not
    tell."""
    info: Any = getattr(driver_connection, "info", None)
    try:
        user, host, database = (quote(text or "", safe="") for text in (info.user, info.host, info.dbname))
        return f"postgresql://{user}@{host}:{info.port}/{database}"
    except Exception:  # it may be closed by now, or be another's connection with an ``info`` of another kind
        return ""
