"""The test tools themselves: a cluster that starts and stops, a wire that can be cut."""

from __future__ import annotations

import asyncio

import asyncpg
import psycopg
import pytest

from tests.cluster import Cluster
from tests.databases import Databases
from tests.proxy import Proxy


def test_cluster_survives_stop_crash_and_restart(own_cluster: Cluster) -> None:
    with psycopg.connect(own_cluster.url(), autocommit=True) as connection:
        connection.execute("create table kept (n integer)")
    own_cluster.kill()
    assert own_cluster.pid is None
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(own_cluster.url())
    own_cluster.start()
    own_cluster.restart()
    with psycopg.connect(own_cluster.url()) as connection:
        assert connection.execute("select count(*) from kept").fetchone() == (0,)
    own_cluster.remove()
    assert own_cluster.pid is None and not own_cluster.directory.exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(own_cluster.url())


def test_each_database_is_migrated_and_gone_afterwards(databases: Databases) -> None:
    with databases.fresh() as name:
        with psycopg.connect(databases.url(name)) as connection:
            assert connection.execute("select count(*) > 0 from redrive.migration").fetchone() == (True,)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(databases.url(name))


def test_a_database_is_used_again_as_long_as_only_rows_were_left_in_it(databases: Databases) -> None:
    with databases.emptied() as first:
        left = psycopg.connect(databases.url(first), autocommit=True)
        left.execute("select redrive.enqueue('LEFT', '{}'); create table mine (id integer); analyze redrive.task")
    with pytest.raises(psycopg.OperationalError):
        left.execute("select 1")
    with databases.emptied() as second, psycopg.connect(databases.url(second), autocommit=True) as connection:
        assert second == first
        rows = connection.execute("select count(*) from redrive.task").fetchone()
        known = connection.execute("select reltuples from pg_class where oid = 'redrive.task'::regclass").fetchone()
        assert (rows, known) == ((0,), (-1,))
        connection.execute("grant select on redrive.task to public")
    with databases.emptied() as third:
        assert third != first


@pytest.mark.anyio
async def test_proxy_cuts_black_holes_delays_refuses_and_restores(proxy: Proxy, proxied_url: str) -> None:
    connection = await asyncpg.connect(proxied_url)
    assert await connection.fetchval("select 1") == 1
    assert proxy.cut() == 1
    with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)):
        await connection.fetchval("select 1")

    connection = await asyncpg.connect(proxied_url)
    proxy.black_hole()
    asked = asyncio.create_task(connection.fetchval("select 2"))
    done, _ = await asyncio.wait([asked], timeout=0.2)
    assert not done
    proxy.restore()
    assert await asked == 2

    proxy.delay(0.05)
    assert await connection.fetchval("select 3") == 3
    proxy.refuse()
    with pytest.raises(OSError):
        await asyncpg.connect(proxied_url)
    assert await connection.fetchval("select 4") == 4
    proxy.restore()
    await (await asyncpg.connect(proxied_url)).close()
    await connection.close()
