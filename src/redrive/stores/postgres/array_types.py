"""PostgreSQL's own array types, which asyncpg would ask each new connection about.

It knows the codecs of scalar types and learns those of arrays from the catalogs: three statements and a recursive query
on every connection, tens of milliseconds of the server's time, while a fleet that has lost its server wants to come
back. The numbers of these types are the same in every PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# The oid of an array: its element's name, and the element's oid.
ARRAYS = {
    199: ("json", 114),
    1000: ("bool", 16),
    1001: ("bytea", 17),
    1005: ("int2", 21),
    1007: ("int4", 23),
    1010: ("tid", 27),
    1015: ("varchar", 1043),
    1016: ("int8", 20),
    1021: ("float4", 700),
    1022: ("float8", 701),
    1115: ("timestamp", 1114),
    1182: ("date", 1082),
    1185: ("timestamptz", 1184),
    1187: ("interval", 1186),
    1231: ("numeric", 1700),
    2951: ("uuid", 2950),
    3807: ("jsonb", 3802),
}


class Answered:
    """Stands for the statement that was not needed. It has a name: no anonymous statement was replaced by it."""

    name = "not sent"


def known_arrays(oids: Iterable[int]) -> list[dict[str, Any]] | None:
    """Returns what the catalogs say about these types, in asyncpg's words; None unless all are arrays known here."""
    wanted = list(oids)
    return [_described(oid) for oid in wanted] if all(oid in ARRAYS for oid in wanted) else None


def _described(oid: int) -> dict[str, Any]:
    element, elements_oid = ARRAYS[oid]
    return {
        "oid": oid,
        "ns": "pg_catalog",
        "name": f"_{element}",
        "kind": b"b",
        "basetype": None,
        "elemtype": elements_oid,
        "elemdelim": ",",
        "range_subtype": None,
        "attrtypoids": None,
        "attrnames": None,
        "basetype_name": None,
        "elemtype_name": element,
        "range_subtype_name": None,
    }
