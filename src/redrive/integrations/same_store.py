"""Refuses tasks whose connection is another store than the one whose transaction they are to be part of."""

from __future__ import annotations

from typing import Any

from redrive.errors import InvalidInput
from redrive.observe.current import CURRENT


def insist_on_same(transaction: Any, connection: str, *, said: bool, default: str) -> None:
    """Refuses tasks for ``connection`` in a transaction of another one. The transaction of a handler's task is on the
    connection of that; one of the application's own is on the default connection, unless ``said`` otherwise."""
    own = _of_handler(transaction)
    if connection == own or (own is None and (said or connection == default)):
        return
    hint = "enqueue it without connection=: then it is not part of the transaction"
    if own is None:
        hint = f'{hint}; or say on="{connection}" if this is a transaction of that database'
    raise InvalidInput(
        f"the task goes to the connection {connection}, and cannot be part of a transaction on {own or default}",
        hint=hint,
    )


def _of_handler(transaction: Any) -> str | None:
    """Returns the connection of what ``ctx.transaction()`` gave; None for other transactions."""
    if not type(transaction).__module__.startswith("redrive."):
        return None
    return getattr(CURRENT.get(), "connection", None)
