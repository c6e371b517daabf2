"""One database for each test: a copy of a migrated template, or one that has been made like it again."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest

from redrive.features import installed
from redrive.kernel.feature import Feature
from redrive.stores.postgres.store import PostgresStore
from tests.cluster import locked, run_directory, shared_server

# What a migrated database has rows in: emptied after each test. The schema itself stays.
TABLES = """
select format('delete from %I.%I', t.schemaname, t.tablename) from pg_tables t
where t.schemaname = 'redrive' and t.tablename not in ('migration', 'function_set', 'reserved_kind')
  and t.tablename !~ '^history_'
-- rows of entries refer to others, and removing a dead letter or a batch leaves a row elsewhere
order by t.tablename <> 'entry', t.tablename <> 'dead_letter', t.tablename <> 'batches_remote'
"""
RESET = """
select setval(seqrelid, seqstart, false) from pg_sequence s join pg_class c on c.oid = s.seqrelid
where c.relnamespace = 'redrive'::regnamespace;
-- as nobody has analyzed it: plans depend on that
update pg_class set relpages = 0, reltuples = -1 where relnamespace = 'redrive'::regnamespace and reltuples >= 0;
delete from pg_statistic where starelid in (select oid from pg_class where relnamespace = 'redrive'::regnamespace)
"""
# What a test may have added to the schema.
REMOVE_TABLES = """
do $$
declare
  v_table text;
begin
  for v_table in select format('%I.%I', t.schemaname, t.tablename) from pg_tables t where t.schemaname = 'public' loop
    execute 'drop table ' || v_table;
  end loop;
  -- what a test of features has brought
  for v_table in
    select format('%I.%I', t.schemaname, t.tablename) from pg_tables t
    join redrive.migration m on m.feature <> all (KEPT)
      and (t.tablename = m.feature or starts_with(t.tablename, m.feature || '_'))
    where t.schemaname = 'redrive'
  loop
    execute 'drop table if exists ' || v_table;
  end loop;
  delete from redrive.migration where feature <> all (KEPT);
  delete from redrive.function_set where feature <> all (KEPT);
  delete from redrive.reserved_kind where feature <> all (KEPT);
end $$
"""
# Whoever is still connected belongs to the test that has ended.
PART = """
select pg_terminate_backend(pid, 2000) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend' and pid <> all (%s)
"""
SHAPE = (Path(__file__).parent / "database_shape.sql").read_text()
VERSIONS = (Path(__file__).parent / "database_versions.sql").read_text()
WORN_OUT = 20_000_000
COUNTING = ("TestCost", "TestInvariants")  # by functions of their own


def database_for(request: pytest.FixtureRequest, features: tuple[Feature, ...] = ()) -> str:
    """The URL of a database for a test of the store, with the tables of these features only. Whoever counts rows must
    not meet the dead ones of earlier tests: they stay visible in an index for as long as any snapshot is older, that of
    an autoanalyze for example."""
    counts = "measure" in request.function.__code__.co_names or (request.cls and request.cls.__name__ in COUNTING)
    databases: Databases = request.getfixturevalue("databases")
    template = databases.template_with(features)
    lent = databases.fresh(template=template.name) if counts else databases.emptied(template)
    name = lent.__enter__()
    request.addfinalizer(lambda: lent.__exit__(None, None, None))
    return databases.url(name)


class Template:
    """A migrated database that others are copied from, with the tables of these features."""

    def __init__(self, name: str, features: tuple[Feature, ...]) -> None:
        self.name, self.features = name, features
        self.clean: list[Copy] = []  # that have been made like it again
        self.shape = self.empty = ""
        kept = ", ".join(f"'{one}'" for one in ("", *(feature.name for feature in features)))
        self.remove_tables = REMOVE_TABLES.replace("(KEPT)", f"(array[{kept}])")


@dataclass
class Copy:
    """A copy of a template, with the connection that empties it: a new one would have to read the catalogs first, which
    takes longer than many a test."""

    name: str
    connection: psycopg.Connection[Any] | None = None
    versions: str = ""  # of its catalogs, when they had the shape of the template


class Databases:
    """The run's server, seen from one test process. ``application`` has the tables of all features that come with
    redrive, ``store`` those of none."""

    def __init__(self) -> None:
        server = shared_server()
        self._server_url, self.template = server["url"], server["template"]
        self._admin = psycopg.connect(self._server_url, autocommit=True)
        self.application = Template(self.template, installed())
        self.store = Template(f"{self.template}_store", ())
        self._templates = [self.application, self.store]
        self.kept: set[int] = set()  # processes of the server that serve the next test, too
        for template in self._templates:
            self._prepare(template)

    def template_with(self, features: tuple[Feature, ...]) -> Template:
        """The template with the tables of these features, made when it is first asked for."""
        for found in self._templates:
            if found.features == features:
                return found
        made = Template(f"{self.template}_{'_'.join(one.name for one in features)}", features)
        self._prepare(made)
        self._templates.append(made)
        return made

    def _prepare(self, template: Template) -> None:
        with locked(f"made_{template.name}") as path:
            if not path.read_text():
                self._admin.execute(f"create database {template.name}")
                _in_thread(self._migrate(template))
                with psycopg.connect(self.url(template.name)) as connection:
                    deletes = [text for (text,) in connection.execute(TABLES)]
                    path.write_text(json.dumps([_value(connection, SHAPE), ";".join([*deletes, RESET])]))
            template.shape, template.empty = json.loads(path.read_text())

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
            self._drop(Copy(name))

    @contextmanager
    def emptied(self, template: Template | None = None) -> Iterator[str]:
        """A migrated database without rows, used again if it can be made as it was: a copy of the template costs as
        much as ten tests."""
        source = template or self.application
        copy = source.clean.pop() if source.clean else Copy(self._create(source.name))
        try:
            yield copy.name
            as_it_was = self._restore(copy, source)
        except BaseException:
            self._drop(copy)
            raise
        if as_it_was:
            source.clean.append(copy)
        else:
            self._drop(copy)

    def _restore(self, copy: Copy, template: Template) -> bool:
        """Removes what a test has left there; tells whether nothing is left but what the template has."""
        try:
            if copy.connection is None:
                copy.connection = psycopg.connect(self.url(copy.name), autocommit=True)
                copy.connection.execute("set lock_timeout = '2s'; set jit = off")
            copy.connection.execute(PART, [list(self.kept)])
            copy.connection.execute(template.empty)
            small = _value(copy.connection, "select pg_database_size(current_database())") < WORN_OUT
            return small and _has_shape(copy, copy.connection, template)
        except psycopg.Error:
            return False

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
        for copy in (copy for template in self._templates for copy in template.clean):
            self._drop(copy)
        self._admin.close()

    def _create(self, source: str) -> str:
        name = f"redrive_{uuid4().hex[:16]}"
        self._admin.execute(f"create database {name} template {source}")
        return name

    def _drop(self, copy: Copy) -> None:
        if copy.connection is not None:
            copy.connection.close()
        self._admin.execute(f"drop database if exists {copy.name} with (force)")

    async def _migrate(self, template: Template) -> None:
        store = PostgresStore(self.url(template.name), template.features)
        await store.migrations.up()
        await store.close()


def _has_shape(copy: Copy, connection: psycopg.Connection[Any], template: Template) -> bool:
    """Tells whether a copy is made as its template is; it is not looked through if nobody changed it."""
    versions = _value(connection, VERSIONS)
    if copy.versions != versions:
        connection.execute(template.remove_tables)
        if _value(connection, SHAPE) != template.shape:
            return False
        copy.versions = _value(connection, VERSIONS)
    return True


def _value(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def drop_templates() -> None:
    """At the end of a run on somebody else's server: leave nothing behind."""
    server = shared_server()
    with psycopg.connect(server["url"], autocommit=True) as admin:
        for path in run_directory().glob("made_*"):
            admin.execute(f"drop database if exists {path.name.removeprefix('made_')} with (force)".encode())


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
