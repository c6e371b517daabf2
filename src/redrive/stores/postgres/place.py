"""Where a PostgreSQL database is: what two ways to get there have to agree in to be taken for the same."""

from __future__ import annotations

from dataclasses import dataclass

_HERE = {"localhost", "127.0.0.1", "::1", "[::1]"}
_USUAL_PORT = 5432


@dataclass(slots=True, frozen=True)
class Place:
    """Host, port and name of a database. Two that are equal are one database; two that differ may still be, by another
    name of the host or a pooler in between."""

    host: str
    port: int
    database: str


def place(host: str | None, port: int | str | None, database: str | None) -> Place | None:
    """Returns a place; None where it is left to defaults that are not known here."""
    if not database or (host is not None and "," in host):
        return None
    name = (host or "").lower()
    here = not name or name in _HERE or name.startswith(("/", "%2f"))
    return Place("" if here else name, int(port or _USUAL_PORT), database)
