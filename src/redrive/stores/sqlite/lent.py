"""What a handler leaves on the connection that it was lent: it ends with the block, as its transaction does."""

from __future__ import annotations

import sqlite3

_TEMPORARY = r"""select type, name from temp.sqlite_master
where type in ('table', 'view', 'trigger') and name not like 'sqlite\_%' escape '\'"""
_OWN = ("main", "temp")


def left_behind(connection: sqlite3.Connection) -> list[str]:
    """Returns the statements that remove what outlived the transaction: temporary objects and attached files."""
    cursor = connection.cursor()
    cursor.row_factory = None
    objects = [f"drop {kind} if exists temp.{_quoted(name)}" for kind, name in cursor.execute(_TEMPORARY)]
    attached = [name for _, name, _ in cursor.execute("pragma database_list") if name not in _OWN]
    return [*objects, *(f"detach {_quoted(name)}" for name in attached)]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
