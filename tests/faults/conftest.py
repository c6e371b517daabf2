"""Stores for fault tests: a database or a file for each test, and a server that may be broken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from tests import cluster
from tests.databases import Databases, _in_thread
from tests.faults.harness import World, world
from tests.proxy import Proxy


@pytest.fixture
def postgres(postgres_url: str, tmp_path: Path) -> Iterator[World]:
    with world(postgres_url, tmp_path) as made:
        yield made


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[World]:
    with world(f"sqlite:///{tmp_path}/tasks.db", tmp_path) as made:
        made.app.sync._portal.call(made.app.store())  # the file and its tables are there before anyone looks
        yield made


@pytest.fixture(params=["postgres", "sqlite"])
def store(request: pytest.FixtureRequest) -> World:
    """The same test on both stores."""
    found: World = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def breakable_server() -> Iterator[cluster.Cluster]:
    """A second server that tests of the group ``breakable`` stop, crash and start again."""
    try:
        server = cluster.private_cluster(f"breakable-{uuid4().hex[:6]}", settings={"max_connections": "30"})
    except cluster.NoPostgres as error:
        pytest.fail(str(error))
    yield server
    server.remove()


@pytest.fixture
def breakable(breakable_server: cluster.Cluster, tmp_path: Path) -> Iterator[World]:
    """A migrated database on the breakable server; the server runs again afterwards, whatever the test did to it."""
    with _fresh(breakable_server) as url, world(url, tmp_path) as made:
        yield made


@contextmanager
def _fresh(server: cluster.Cluster) -> Iterator[str]:
    from redrive.features import installed
    from redrive.stores.postgres.store import PostgresStore

    name = f"redrive_{uuid4().hex[:12]}"
    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute(f"create database {name}")

    async def migrate() -> None:
        store = PostgresStore(server.url(name), installed())
        await store.migrations.up()
        await store.close()

    _in_thread(migrate())
    try:
        yield server.url(name)
    finally:
        if server.pid is None:
            server.start()
        with psycopg.connect(server.url(), autocommit=True) as admin:
            admin.execute(f"drop database if exists {name} with (force)")


@pytest.fixture
def wire(databases: Databases, postgres: World) -> Iterator[tuple[Proxy, str]]:
    """A proxy to the test's database, and the URL through it."""
    parts = urlsplit(postgres.url)
    with Proxy(parts.hostname or "127.0.0.1", parts.port or 5432) as proxy:
        yield proxy, parts._replace(netloc=f"{parts.username or 'postgres'}@127.0.0.1:{proxy.port}").geturl()
