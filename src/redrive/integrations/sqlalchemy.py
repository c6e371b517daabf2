"""SQLAlchemy 2: sessions and connections, over any of its PostgreSQL and SQLite drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.errors import InvalidInput
from redrive.integrations import postgres, sqlite
from redrive.integrations.own_commit import OwnCommit, before_the_first_statement
from redrive.kernel.task import Enqueued

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session


def on_session(session: Session, own: OwnCommit) -> list[Enqueued]:
    return on_connection(session.connection(), own)


async def on_async_session(session: AsyncSession, own: OwnCommit) -> list[Enqueued]:
    await before_the_first_statement()
    return await session.run_sync(on_session, own)


async def on_async_connection(connection: AsyncConnection, own: OwnCommit) -> list[Enqueued]:
    await before_the_first_statement()
    return await connection.run_sync(on_connection, own)


def on_connection(connection: Connection, own: OwnCommit) -> list[Enqueued]:
    match connection.dialect.name:
        case "postgresql":
            return _on_postgres(connection, own)
        case "sqlite":
            return _on_sqlite(connection, own)
    raise InvalidInput(
        f"this SQLAlchemy connection is to {connection.dialect.name}; redrive keeps its tasks in PostgreSQL or SQLite",
        hint="use a connection to the database that redrive's URL names",
    )


def _on_postgres(connection: Connection, own: OwnCommit) -> list[Enqueued]:
    numbered = connection.dialect.paramstyle == "numeric_dollar"
    with postgres.explained(connection.connection.driver_connection):
        result = connection.exec_driver_sql(*postgres.call(own, numbered=numbered))
        return postgres.answers(own, result.all())


def _on_sqlite(connection: Connection, own: OwnCommit) -> list[Enqueued]:
    if not connection.in_transaction():
        connection.begin()  # what the first statement would do; some engines send BEGIN from here

    def execute(sql: str, args: tuple[Any, ...]) -> list[Any]:
        result = connection.exec_driver_sql(sql, args)
        return list(result) if result.returns_rows else []

    return sqlite.apply(connection.connection.driver_connection, execute, own)
