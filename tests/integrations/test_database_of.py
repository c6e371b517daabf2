"""On which of several PostgreSQL databases a caller's transaction is."""

from __future__ import annotations

import psycopg
import pytest

from redrive import App
from redrive.errors import InvalidInput
from redrive.integrations.same_store import database_of
from redrive.settings import Route, load_settings
from redrive.settings.connections import Connection
from redrive.stores.postgres.url import parse, place
from tests.databases import Databases
from tests.integrations.callers import Caller
from tests.integrations.conftest import Outside


def test_every_way_of_holding_a_connection_says_where_it_is(caller: Caller, outside: Outside) -> None:
    async def scenario(caller: Caller) -> None:
        found = database_of(caller.handle)
        assert found == (None if outside.sqlite else parse(outside.app.url).place)

    caller.play(scenario)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("postgresql://u:p@db.example:6432/shop", ("db.example", 6432, "shop")),
        ("postgresql://DB.example/shop", ("db.example", 5432, "shop")),
        ("postgresql:///shop?host=/run/postgresql&port=5433", ("", 5433, "shop")),
        ("postgresql://127.0.0.1/?dbname=shop", ("", 5432, "shop")),
        ("postgresql://localhost/sh%20op", ("", 5432, "sh op")),
        ("postgresql://localhost", None),
        ("postgresql://a,b/shop", None),
        ("postgresql:///shop?service=main", None),
    ],
)
def test_a_url_names_a_place(url: str, found: tuple[str, int, str] | None) -> None:
    assert parse(url).place == (None if found is None else place(*found))


async def test_tasks_are_part_of_a_transaction_of_their_own_database_only(databases: Databases) -> None:
    with databases.fresh() as main, databases.fresh() as insights:
        urls = {"main": databases.url(main), "insights": databases.url(insights)}
        known = {name: Connection(url=url) for name, url in urls.items()}
        routes = {"REPORT": Route(connection="insights")}
        async with App(settings=load_settings(connections=known, routes=routes)) as app:
            with psycopg.connect(urls["insights"]) as own:
                with pytest.raises(InvalidInput, match=r"connection main, and cannot .* transaction on insights"):
                    await app.enqueue("SEND", connection=own)
                with pytest.raises(InvalidInput, match="transaction on insights"):
                    await app.enqueue("SEND", connection=own, on="main")
                await app.enqueue("REPORT", connection=own)
                own.commit()
                assert own.execute("select kind from redrive.task").fetchall() == [("REPORT",)]
            with psycopg.connect(urls["main"]) as own:
                with pytest.raises(InvalidInput, match="transaction on main"):
                    await app.enqueue("SEND", connection=own, on="insights")
                await app.enqueue("SEND", connection=own)
