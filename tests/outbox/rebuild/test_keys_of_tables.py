"""Pages of a table come to its end and leave no row out, whatever the type of its key."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from redrive.outbox.table_source import Table, table_source
from tests.outbox.conftest import make_app

pytestmark = pytest.mark.anyio
ROWS = 13
LIMIT = 5
NUMBERS = f"(with recursive c(n) as (select 1 union all select n + 1 from c where n < {ROWS}) select n from c) s"
SERIES = f"generate_series(1, {ROWS}) n"
# Type of the key, and its values. SQLite keeps any type in any column; PostgreSQL cuts to a length of 1 where none is.
ON_SQLITE = {
    "": ["1000000000000000000 + n", "cast(100 + n as text)", "n * 1.1", "case n % 2 when 0 then n else 'x' || n end"],
    "integer": ["1000000000000000000 + n", "n - 5"],
    "text": ["'00' || n", "100 + n", "'it''s ' || n"],
    "real": ["n / 3.0", "n * 1e300"],
    "blob": ["cast('id ' || n as blob)"],
}
ON_POSTGRES = {
    "numeric": ["9007199254740992.5 + n * 0.26", "1 + n * 0.00000000000000000001"],
    "char(36)": ["'ab' || n"],
    "bit(8)": ["(128 + n)::bit(8)"],
    "text": ["'it''s ' || n"],
    "timestamptz": ["'2026-11-17 10:00+01'::timestamptz + n * interval '1 us'"],
    "double precision": ["n / 3.0"],
    "uuid": ["md5(n::text)::uuid"],
}


def cases(given: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(kind, values) for kind, several in given.items() for values in several]


async def check_pages(url: str, tables: int) -> None:
    app = make_app(url)
    await app.migrate()
    for number in range(tables):
        source = await table_source(await app.store(), "notes", Table(f"t{number}", id="id"))
        ids, place = list[str](), None
        for _ in range(ROWS):
            page = await source.page(place, LIMIT)
            ids += [record.entity_id for record in page.records]
            if (place := page.next) is None:
                break
        assert (len(ids), len(set(ids))) == (ROWS, ROWS), f"table {number}: {ids}"
    await app.close()


async def test_on_sqlite(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "redrive.db", isolation_level=None)) as db:
        for number, (kind, values) in enumerate(cases(ON_SQLITE)):
            db.execute(f"create table t{number} (id {kind} primary key, version integer not null default 1)")
            db.execute(f"insert into t{number} (id) select {values} from {NUMBERS}")
    await check_pages(f"sqlite:///{tmp_path}/redrive.db", len(cases(ON_SQLITE)))


async def test_on_postgres(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as db:
        for number, (kind, values) in enumerate(cases(ON_POSTGRES)):
            db.execute(f"create table t{number} (id {kind} primary key, version integer not null default 1)".encode())
            db.execute(f"insert into t{number} (id) select {values} from {SERIES}".encode())
    await check_pages(postgres_url, len(cases(ON_POSTGRES)))
