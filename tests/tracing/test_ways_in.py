"""A caller's context by every way in: SQL, a transaction of one's own, HTTP; and found by what callers know of it."""

from __future__ import annotations

import sqlite3
from typing import Any

import psycopg

from redrive import App
from redrive.kernel.trace import split_trace
from redrive.ops.search import Match, find
from redrive.testing import using

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def test_what_a_context_is() -> None:
    assert split_trace(PARENT) == (TRACE, PARENT)
    assert split_trace(f"{PARENT} congo=t61rcWkgMzE") == (TRACE, f"{PARENT} congo=t61rcWkgMzE")
    for later in (f"cc{PARENT[2:]}", f"01{PARENT[2:]}-extra", f"cc{PARENT[2:]}-a-b a=b", f"01{PARENT[2:]}-"):
        assert split_trace(later) == (TRACE, later), "of a later version: by its first four fields"
    for label in (
        "order-17",
        TRACE,
        f"ff{PARENT[2:]}",
        f"ff{PARENT[2:]}-more",
        f"cc{PARENT[2:]}more",
        PARENT.upper(),
        PARENT + "-more",
        f"00-{'0' * 32}-{'1' * 16}-01",
    ):
        assert split_trace(label) == (label, None)
    assert split_trace(None) == (None, None)


LABELS = [
    PARENT,
    f"{PARENT} a=b",
    f"cc{PARENT[2:]}",
    f"01{PARENT[2:]}-extra",
    f"01{PARENT[2:]}-extra a=b",
    f"cc{PARENT[2:]}more",
    f"ff{PARENT[2:]}",
    f"ff{PARENT[2:]}-extra",
    PARENT.upper(),
    PARENT + "-more",
    "order-17",
    TRACE,
]
LABELS += [
    f"00-{'0' * 32}-{'1' * 16}-01",
    f"00-{'1' * 32}-{'0' * 16}-01",
    PARENT[:54],
    f"00-{'1' * 16}-{'1' * 15}-ab {'-' * 40}",
]


def test_postgresql_splits_as_python_does(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        for label in LABELS:
            found = connection.execute(
                "select redrive.trace_id(%s), redrive.trace_parent(%s)", (label, label)
            ).fetchone()
            assert found == split_trace(label), label


async def test_a_transaction_of_ones_own(app: App, url: str) -> None:
    if url.startswith("sqlite"):
        await app.migrate()
        connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"))
        prefix = "redrive_"
    else:
        connection, prefix = psycopg.connect(url), "redrive."
    with connection:
        app.sync.enqueue_many([{"kind": "SYSTEM_HEALTH_CHECK", "trace_id": PARENT}] * 2, connection=connection)
        await app.enqueue("SYSTEM_HEALTH_CHECK", trace_id=PARENT, connection=connection)
        rows = connection.execute(f"select trace_id, trace_parent from {prefix}task").fetchall()
    connection.close()
    assert rows == [(TRACE, PARENT)] * 3


async def test_an_http_callers_context_is_kept_and_given_to_executors() -> None:
    async with using() as kit:
        made = kit.api.post("/api/tasks", {"kind": "FETCH"}, traceparent=PARENT).json()
        assert made["traceId"] == TRACE
        broken = kit.api.post("/api/tasks", {"kind": "FETCH"}, traceparent="00-broken").json()
        assert broken["traceId"] is None
        too_long = f"01{PARENT[2:]}-{'x' * 1000}"
        assert (
            kit.api.post("/api/tasks", {"kind": "FETCH", "queue": "other"}, traceparent=too_long).json()["traceId"]
            is None
        )
        [own] = [kit.api.post("/api/tasks", {"kind": "FETCH", "traceId": "mine"}, traceparent=PARENT).json()]
        assert own["traceId"] == "mine"
        claimed = kit.api.post("/api/tasks/claim", {"workerId": "w", "count": 3}).json()
        told = {one["id"]: (one["traceId"], one["traceparent"]) for one in claimed}
        assert told == {made["id"]: (TRACE, PARENT), broken["id"]: (None, None), own["id"]: ("mine", None)}


async def test_the_id_of_a_trace_and_a_whole_context_find_the_task() -> None:
    async with using() as kit:
        made = kit.api.post("/api/tasks", {"kind": "FETCH"}, traceparent=PARENT).json()
        for given in (TRACE, PARENT):
            found = kit.api.get("/api/tasks", traceId=given).json()["tasks"]
            assert [one["id"] for one in found] == [made["id"]]


async def test_the_jump_box_of_the_console_understands_both() -> None:
    async with using() as kit:
        kit.api.post("/api/tasks", {"kind": "FETCH"}, traceparent=PARENT).json()
        for given in (TRACE, PARENT):
            assert await find(kit.store, given) == [Match("traceId", TRACE)]
