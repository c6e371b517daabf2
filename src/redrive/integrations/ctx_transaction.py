"""What ``ctx.transaction()`` gives, where it is not a driver's connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redrive.integrations import sqlite
from redrive.integrations.own_commit import OwnCommit
from redrive.integrations.waiting import before_the_first_statement
from redrive.kernel.task import Enqueued
from redrive.stores.sqlite.transaction import SqliteTransaction


async def on_transaction(transaction: SqliteTransaction, own: OwnCommit) -> list[Enqueued]:
    await before_the_first_statement()
    return await transaction.step(lambda session: sqlite.on_connection(session.connection, own, session.now))


def on_blocking(blocking: Any, own: OwnCommit, apply_on: Callable[..., Any]) -> list[Enqueued]:
    """In a ``def`` handler: the transaction lives on the worker's loop, this thread waits for it."""
    answers: list[Enqueued] = blocking.wait(apply_on(blocking.transaction, own))
    return answers
