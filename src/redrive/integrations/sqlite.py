"""Enqueueing on SQLite: several statements, so they are made atomic whatever the connection's mode is."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from redrive.errors import SchemaError
from redrive.integrations.own_commit import MEMORY, OwnCommit, Remedy, before_the_first_statement, causes, migrate
from redrive.kernel.task import Enqueued
from redrive.stores.sqlite.apply import apply_with
from redrive.stores.sqlite.session import micros, take_positions
from redrive.stores.sqlite.transaction import SqliteTransaction

Execute = Callable[[str, tuple[Any, ...]], list[Any]]

_SAVEPOINT = "redrive_enqueue"


def on_connection(connection: sqlite3.Connection, own: OwnCommit, now_us: int | None = None) -> list[Enqueued]:
    cursor = connection.cursor()
    # Rows and text as they come, whatever the owner of the connection prefers.
    cursor.row_factory = None
    text_factory, connection.text_factory = connection.text_factory, str
    try:
        return apply(connection, lambda sql, args: cursor.execute(sql, args).fetchall(), own, now_us)
    finally:
        connection.text_factory = text_factory


async def on_aiosqlite(connection: Any, own: OwnCommit) -> list[Enqueued]:
    await before_the_first_statement()
    # Private, but the only way to keep other users of the connection from coming between our statements.
    answers: list[Enqueued] = await connection._execute(lambda: on_connection(connection._conn, own))
    return answers


async def on_transaction(transaction: SqliteTransaction, own: OwnCommit) -> list[Enqueued]:
    """On what ``ctx.transaction()`` gives on SQLite."""
    await before_the_first_statement()
    return await transaction.step(lambda session: on_connection(session.connection, own, session.now))


def apply(
    raw: Any, execute: Execute, own: OwnCommit, now_us: int | None = None, remedy: Remedy = migrate
) -> list[Enqueued]:
    """``raw`` is the driver's connection and only asked for its state; ``execute`` runs a statement on it."""
    with _explained(execute, remedy), _atomically(raw, execute):
        # Write before reading: a transaction that reads first cannot wait for a writer that comes in between.
        take_positions(execute, 0)
        now = micros(time.time()) if now_us is None else now_us
        applied = apply_with(execute, own.commit, own.known("sqlite"), now)
        own.repeated.update(applied.repeated)
        return applied.enqueued


@contextmanager
def _atomically(raw: Any, execute: Execute) -> Iterator[None]:
    joins = bool(raw.in_transaction)
    # A savepoint outside of a transaction would begin one, and its release commit it under the caller's feet.
    execute(f"savepoint {_SAVEPOINT}" if joins else "begin immediate", ())
    try:
        yield
    except BaseException:
        if raw.in_transaction:  # unless SQLite gave up the whole of it
            if joins:
                execute(f"rollback to {_SAVEPOINT}", ())
                execute(f"release {_SAVEPOINT}", ())
            else:
                execute("rollback", ())
        raise
    if joins:
        execute(f"release {_SAVEPOINT}", ())
    elif _autocommits(raw):
        execute("commit", ())


def _autocommits(raw: Any) -> bool:
    """Is each statement outside of a transaction one of its own? (``autocommit`` came with Python 3.12)"""
    mode = getattr(raw, "autocommit", -1)
    return mode is True or (mode == -1 and raw.isolation_level is None)


@contextmanager
def _explained(execute: Execute, remedy: Remedy) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        for cause in causes(error):
            if isinstance(cause, sqlite3.OperationalError) and "no such table" in str(cause):
                file = _file(execute)
                raise SchemaError(
                    f"this connection's database ({file or 'in memory'}) has no redrive tables: {cause}",
                    hint=remedy(f"sqlite:///{quote(file)}" if file else MEMORY),
                ) from error
        raise


def _file(execute: Execute) -> str:
    """Returns the path of the connection's file; of a database in memory it is empty."""
    files = {row[1]: row[2] for row in execute("pragma database_list", ())}
    return files.get("main") or ""
