"""Array types that the store's connections know without asking the server."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from redrive.stores.postgres.connection import ARRAYS, StoreConnection
from redrive.stores.postgres.pool import Pool

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
VALUES: dict[str, list[Any]] = {
    "json": ['{"a": 1}', None],
    "bool": [True, None, False],
    "bytea": [b"\x00", None],
    "int2": [1, None],
    "int4": [1, None, -5],
    "tid": [(0, 1)],
    "varchar": ["a", None, "NULL", "{,}"],
    "int8": [2**40, None],
    "float4": [0.5, None],
    "float8": [0.1, None],
    "timestamp": [NOW.replace(tzinfo=None), None],
    "date": [date(2026, 1, 2), None],
    "timestamptz": [NOW, None],
    "interval": [timedelta(seconds=5), None],
    "numeric": [Decimal("1.10"), None],
    "uuid": [UUID(int=7), None],
    "jsonb": ['{"a": 1}', None],
}


async def test_they_are_what_the_catalogs_say(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    found = await connection.fetch(
        "select a.oid, e.typname, e.oid as element, e.typdelim from pg_type a join pg_type e on e.oid = a.typelem"
        " where a.oid = any($1::oid[])",
        list(ARRAYS),
    )
    await connection.close()
    assert {row["oid"]: (row["typname"], row["element"]) for row in found} == ARRAYS
    assert {row["typdelim"] for row in found} == {b","}


async def test_nothing_is_asked_for_them_and_values_come_back(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(*_: Any) -> None:
        raise AssertionError("the catalogs were asked")

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", ask)
    pool = Pool(postgres_url)
    for name, values in VALUES.items():
        query = f"select $1::{name}[]"
        assert await pool.run(lambda connection, q=query, v=values: connection.fetchval(q, v)) == values  # type: ignore[misc]
    await pool.close()


async def test_other_types_are_asked_for(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url, connection_class=StoreConnection)
    assert await connection.fetchval("select array['1.2.3.4'::inet, null]") is not None
    assert await connection.fetchval("select row(1, 'a'::text)") == (1, "a")
    await connection.close()
