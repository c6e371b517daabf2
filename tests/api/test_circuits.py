"""Circuits over HTTP and by the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from redrive import App, Circuit, Context
from redrive.observe.logs import TaskLog
from redrive.settings import Options
from tests.api.conftest import served
from tests.cli.conftest import Said, redrive

__all__ = ["redrive"]  # a fixture


def made(path: Path) -> App:
    app = App(f"sqlite:///{path}/circuits.db")

    far = Circuit("far", failures=2, delay=3600, max_delay=3600)

    # The first is not due again while the others are looked at, however slow the machine is.
    @app.task("CALL", max_attempts=9, circuit=far, backoff_base=3600, backoff_max=3600)
    async def call(ctx: Context) -> None:
        raise ConnectionRefusedError("nobody there")

    return app


async def work(app: App) -> None:
    options = Options(stop_when_empty=True, concurrency=1)
    await app.worker(await app.store(), options, log=TaskLog(style="off")).run()


@pytest.mark.anyio
async def test_over_http(tmp_path: Path) -> None:
    app = made(tmp_path)
    for _ in range(3):
        await app.enqueue("CALL")
    await work(app)
    async with served(app) as client:
        (found,) = (await client.get("/api/circuits")).json()
        assert (found["name"], found["state"], found["kinds"], found["queued"]) == ("far", "open", ["CALL"], 2)
        assert found["reason"].startswith("connect: ConnectionRefusedError") and "token" not in found
        assert found["told"].startswith("open since ")
        (kind,) = [one for one in (await client.get("/api/kinds")).json() if one["name"] == "CALL"]
        assert (kind["circuit"], kind["paused"]) == ("far", None)
        closed = await client.post("/api/circuits/far/close", json={"reason": "mended"}, headers={"X-Actor": "ann"})
        assert (closed.json()["changed"], closed.json()["circuit"]["state"]) == (True, "closed")
        assert (await client.post("/api/circuits/far/probe")).json()["changed"] is False
        again = (await client.post("/api/circuits/far/open")).json()
        assert (again["changed"], again["circuit"]["state"], again["circuit"]["opened"]) == (True, "open", 2)
        unknown = await client.post("/api/circuits/near/open")
        assert unknown.status_code == 404 and "circuits: far" in unknown.text


async def _outage(path: Path) -> None:
    app = made(path)
    for _ in range(3):
        await app.enqueue("CALL")
    await work(app)
    await app.close()


def test_by_commands(tmp_path: Path, redrive: Callable[..., Said]) -> None:
    asyncio.run(_outage(tmp_path))
    where = ("--url", f"sqlite:///{tmp_path}/circuits.db")
    listed = redrive("circuits", *where)
    assert listed.code == 0 and "far" in listed.out and "open" in listed.out and "connect" in listed.out
    (found,) = redrive("circuits", *where, "--json").json["items"]
    assert (found["name"], found["state"], found["queued"]) == ("far", "open", 2)
    assert "open circuits" in redrive("stats", *where).out
    assert [one["name"] for one in redrive("stats", *where, "--json").json["circuits"]] == ["far"]
    assert "circuit far open since" in redrive("list", *where).out
    told = redrive("circuits", "probe", "far", *where)
    assert told.code == 0 and "the next probe now" in told.out
    closed = redrive("circuits", "close", "far", "--by", "ann", "--reason", "mended", *where)
    assert closed.code == 0 and closed.out.startswith("circuit far is closed since ")
    assert redrive("circuits", "close", "far", *where).out.startswith("nothing to do: circuit far is closed")
    unknown = redrive("circuits", "open", "near", *where)
    assert unknown.code == 1 and "circuits: far" in unknown.err
