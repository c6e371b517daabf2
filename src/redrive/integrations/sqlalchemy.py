"""SQLAlchemy 2: sessions and connections, over any of its PostgreSQL and SQLite drivers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redrive.errors import InvalidInput
from redrive.integrations import postgres, sqlite
from redrive.integrations.waiting import before_the_first_statement
from redrive.kernel.task import Enqueued, NewTask

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session


def on_session(session: Session, tasks: Sequence[NewTask]) -> list[Enqueued]:
    return on_connection(session.connection(), tasks)


async def on_async_session(session: AsyncSession, tasks: Sequence[NewTask]) -> list[Enqueued]:
    await before_the_first_statement()
    return await session.run_sync(on_session, tasks)


async def on_async_connection(connection: AsyncConnection, tasks: Sequence[NewTask]) -> list[Enqueued]:
    await before_the_first_statement()
    return await connection.run_sync(on_connection, tasks)


def on_connection(connection: Connection, tasks: Sequence[NewTask]) -> list[Enqueued]:
    match connection.dialect.name:
        case "postgresql":
            return _on_postgres(connection, tasks)
        case "sqlite":
            return _on_sqlite(connection, tasks)
    raise InvalidInput(
        f"this SQLAlchemy connection is to {connection.dialect.name}; redrive keeps its tasks in PostgreSQL or SQLite",
        hint="use a connection to the database that redrive's URL names",
    )


def _on_postgres(connection: Connection, tasks: Sequence[NewTask]) -> list[Enqueued]:
    numbered = connection.dialect.paramstyle == "numeric_dollar"
    with postgres.explained(connection.connection.driver_connection):
        result = connection.exec_driver_sql(postgres.NUMBERED if numbered else postgres.FORMAT, postgres.params(tasks))
        return postgres.answers(tasks, result.all())


def _on_sqlite(connection: Connection, tasks: Sequence[NewTask]) -> list[Enqueued]:
    if not connection.in_transaction():
        connection.begin()  # what the first statement would do; some engines send BEGIN from here

    def execute(sql: str, args: tuple[Any, ...]) -> list[Any]:
        result = connection.exec_driver_sql(sql, args)
        return list(result) if result.returns_rows else []

    return sqlite.enqueue(connection.connection.driver_connection, execute, tasks)
