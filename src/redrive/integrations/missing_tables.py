"""Says how redrive's tables come into a database that has none."""

from __future__ import annotations

from collections.abc import Callable

from redrive.stores.refusals import migrate_command

MEMORY = "sqlite:///:memory:"
# What to do for the database of this URL; it is empty where the driver does not tell.
Remedy = Callable[[str], str]


def migrate(url: str) -> str:
    if url == MEMORY:
        return "use a connection to the file that redrive's URL names: no command reaches a database in memory"
    return f"connect to the database that redrive's URL names, or run: {migrate_command(url)}"
