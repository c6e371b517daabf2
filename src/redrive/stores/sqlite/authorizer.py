"""Refuses statements of a handler that would reach beyond its transaction: the connection is everybody's."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from redrive.errors import StoreError
from redrive.stores.refusals import ended_inside

T = TypeVar("T")

# Pragmas that only read what they are given the name of, or whose effect is part of the transaction. All others are
# settings of the connection, of the file's locks or of the whole process once they are given a value.
_WITHIN = frozenset(
    [
        "table_info",
        "table_xinfo",
        "table_list",
        "index_list",
        "index_info",
        "index_xinfo",
        "foreign_key_list",
        "foreign_key_check",
        "integrity_check",
        "quick_check",
        "optimize",
        "incremental_vacuum",
        "defer_foreign_keys",
        "user_version",
        "application_id",
    ]
)


def within_transaction(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Calls ``work``, which may run many statements; none may end the transaction, not even to begin another, nor set
    what would outlive it."""
    refused: StoreError | None = None

    def judge(action: int, name: str | None, value: str | None, *_: object) -> int:
        nonlocal refused
        if action == sqlite3.SQLITE_TRANSACTION:
            refused = ended_inside()
        elif action == sqlite3.SQLITE_PRAGMA and value is not None and str(name).lower() not in _WITHIN:
            refused = _outlives(str(name))
        else:
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_DENY

    connection.set_authorizer(judge)
    try:
        answer = work(connection)
    except Exception as error:
        if refused is not None:
            raise refused from error
        raise
    finally:
        connection.set_authorizer(None)
    if refused is not None:
        raise refused
    return answer


def one_statement(connection: sqlite3.Connection, sql: str, work: Callable[[sqlite3.Connection], T]) -> T:
    """Calls ``work``, which runs this statement. The judge is asked only about pragmas: with one, SQLite prepares every
    statement of the connection anew."""
    return within_transaction(connection, work) if "pragma" in sql.lower() else work(connection)


def _outlives(pragma: str) -> StoreError:
    return StoreError(
        f"PRAGMA {pragma} is a setting that outlives the transaction, of the connection that everybody writes through",
        hint="read it without a value; set what your own statements need on a connection of your own",
    )
