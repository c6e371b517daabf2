"""One database for each test, copied from a migrated template."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg

from redrive.stores.postgres.store import PostgresStore
from tests.cluster import locked, shared_server

# Everything a test may have left in a migrated database; the schema itself stays.
EMPTY = """
do $$
declare
  v_table text;
begin
  for v_table in
    select format('%I.%I', t.schemaname, t.tablename) from pg_tables t
    where t.schemaname = 'redrive' and t.tablename <> 'migration' and t.tablename !~ '^history_'
    -- rows of entries refer to others, and removing a dead letter leaves a row among the deltas
    order by t.tablename <> 'entry', t.tablename <> 'dead_letter'
  loop
    execute 'delete from ' || v_table;
  end loop;
  for v_table in select format('%I.%I', t.schemaname, t.tablename) from pg_tables t where t.schemaname = 'public' loop
    execute 'drop table ' || v_table;
  end loop;
  -- what a test of features has brought
  for v_table in
    select format('%I.%I', t.schemaname, t.tablename) from pg_tables t join redrive.migration m on m.feature <> ''
      and (t.tablename = m.feature or starts_with(t.tablename, m.feature || '_'))
    where t.schemaname = 'redrive'
  loop
    execute 'drop table if exists ' || v_table;
  end loop;
  delete from redrive.migration where feature <> '';
end $$
"""
WORN_OUT = 20_000_000


class Databases:
    """The run's server, seen from one test process."""

    def __init__(self) -> None:
        server = shared_server()
        self._server_url, self.template = server["url"], server["template"]
        self._admin = psycopg.connect(self._server_url, autocommit=True)
        self._clean: list[str] = []
        with locked("template") as path:
            if not path.read_text():
                self._admin.execute(f"create database {self.template}")
                _in_thread(self._migrate())
                path.write_text("migrated")

    def url(self, name: str, *, user: str | None = None) -> str:
        parts = urlsplit(self._server_url)
        netloc = parts.netloc if user is None else f"{user}@{parts.netloc.rsplit('@', 1)[-1]}"
        return urlunsplit(parts._replace(path=f"/{name}", netloc=netloc))

    @contextmanager
    def fresh(self, *, template: str | None = None, empty: bool = False) -> Iterator[str]:
        """The name of a new database: a copy of the migrated template, or ``empty``."""
        name = self._create("template0" if empty else template or self.template)
        try:
            yield name
        finally:
            self._drop(name)

    @contextmanager
    def emptied(self) -> Iterator[str]:
        """A migrated database without rows, used again and again: a copy of the template costs as much as ten tests."""
        name = self._clean.pop() if self._clean else self._create(self.template)
        try:
            yield name
            with psycopg.connect(self.url(name), autocommit=True) as connection:
                connection.execute("set lock_timeout = '2s'")  # a failed test may have left a transaction open
                connection.execute(EMPTY)
                (size,) = connection.execute("select pg_database_size(current_database())").fetchone() or (WORN_OUT,)
        except psycopg.Error:
            size = WORN_OUT
        except BaseException:
            self._drop(name)
            raise
        if size < WORN_OUT:
            self._clean.append(name)
        else:
            self._drop(name)

    @contextmanager
    def role(self, name: str) -> Iterator[str]:
        """A login role with no rights. Roles belong to the whole server, so its name is made unique."""
        unique = f"{name}_{uuid4().hex[:8]}"
        self._admin.execute(f"create role {unique} login")
        try:
            yield unique
        finally:
            self._admin.execute(f"drop role {unique}")

    def close(self) -> None:
        for name in self._clean:
            self._drop(name)
        self._admin.close()

    def _create(self, source: str) -> str:
        name = f"redrive_{uuid4().hex[:16]}"
        self._admin.execute(f"create database {name} template {source}")
        return name

    def _drop(self, name: str) -> None:
        self._admin.execute(f"drop database if exists {name} with (force)")

    async def _migrate(self) -> None:
        store = PostgresStore(self.url(self.template))
        await store.migrations.up()
        await store.close()


def drop_template() -> None:
    """At the end of a run on somebody else's server: leave nothing behind."""
    server = shared_server()
    with psycopg.connect(server["url"], autocommit=True) as admin:
        admin.execute(f"drop database if exists {server['template']} with (force)")


def _in_thread(work: object) -> None:
    """Fixtures may be set up while a loop runs in this thread."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(work)  # type: ignore[arg-type]
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
