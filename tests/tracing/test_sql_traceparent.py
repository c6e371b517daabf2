"""``traceparent`` of the SQL function ``redrive.enqueue``: what it does, and that nobody else notices."""

from __future__ import annotations

from typing import Any

import asyncpg
import psycopg
import pytest

from redrive import App, Context
from redrive.ids import new_id
from redrive.settings import load_settings
from tests.tracing.conftest import Spans
from tests.tracing.test_ways_in import PARENT, TRACE
from tests.worker.conftest import drain

MANY = "select id, existing, conflict from redrive.enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"


def rows(connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return connection.execute("select queue, trace_id, trace_parent from redrive.task order by id").fetchall()


@pytest.mark.parametrize(
    "more",
    [
        "",
        ", idempotency_key => 'k'",
        ", delay => interval '1 min'",
        ", queue => 'mail', priority => 3, max_attempts => 2",
    ],
)
def test_a_task_is_in_the_trace_of_its_parent(postgres_url: str, more: str) -> None:
    given = f"{PARENT} congo=t61rcWkgMzE"
    with psycopg.connect(postgres_url) as connection:
        connection.execute(f"select redrive.enqueue('A', '{{}}', traceparent => %s{more})", (given,))
        connection.execute(
            f"select redrive.enqueue(kind => 'A', payload => '{{}}', traceparent => %s::text{more})", (given,)
        )
        found = rows(connection)
    assert found[0] == ("mail" if "mail" in more else "default", TRACE, given)
    assert len(found) == (1 if "'k'" in more else 2), "and all other arguments mean what they always do"


@pytest.mark.parametrize(
    "broken",
    [
        None,
        "",
        "00-broken",
        "order-17",
        PARENT.upper(),
        f"01{PARENT[2:]}-{'x' * 1000}",
        f"{PARENT} a=\n",
        f"{PARENT} a=é",
    ],
)
def test_a_malformed_one_is_ignored_as_the_header_of_http_is(postgres_url: str, broken: str | None) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("select redrive.enqueue('A', null, traceparent => %s)", (broken,))
        assert rows(connection) == [("default", None, None)]


async def test_an_attempts_span_is_a_child_of_it(postgres_url: str, spans: Spans) -> None:
    app = App(settings=load_settings(url=postgres_url, tracing="on", log_format="off"))

    @app.task("TRACED")
    async def traced(ctx: Context) -> None: ...

    with psycopg.connect(postgres_url) as connection:
        connection.execute("select redrive.enqueue('TRACED', '{}', traceparent => %s)", (PARENT,))
    await drain(app)
    await app.close()
    span = spans.one("process TRACED")
    assert span.parent is not None
    assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT[36:52])


async def test_calls_of_the_other_forms_mean_what_they_did(postgres_url: str) -> None:
    """Also those whose parameters have no types, as drivers send them: PostgreSQL decides by where they stand."""
    connection = await asyncpg.connect(postgres_url)
    id = new_id()
    for text, values in (
        ("select redrive.enqueue('A', '{}', 'mail')", ()),
        ("select redrive.enqueue($1, $2, $3)", ("A", "{}", "mail")),
        ("select redrive.enqueue($1, $2, $3, $4, $5)", ("A", "{}", "mail", 1, 2)),
        ("select redrive.enqueue('A', '{}', 'mail'::varchar)", ()),
        ("select redrive.enqueue('A', '{}', 'mail'::name)", ()),
        ("select redrive.enqueue('A', null, queue => 'mail', trace_id => $1)", (None,)),
        (
            "select redrive.enqueue($1, $2, $3, $4, $5, make_interval(secs => $6), $7, make_interval(secs => $8),"
            " $9, $10, $11, null, $12)",
            ("A", "{}", "mail", 0, 5, None, None, None, None, None, None, id),
        ),
    ):
        await connection.execute("delete from redrive.task")
        await connection.fetchval(text, *values)
        found = await connection.fetch("select queue, trace_id from redrive.task")
        assert [tuple(row) for row in found] == [("mail", None)], text
    await connection.fetch(MANY, *many())
    assert await connection.fetchval("select count(*) from redrive.task") == 2
    await connection.close()


def many() -> list[Any]:
    return [[new_id()], ["A"], ["mail"], ["{}"], [0], [5], None, None, None, None, None, None, None, False]
