"""Routes are made once for all applications of a process, and belong to none of them."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from redrive import App
from redrive.api import make_api
from redrive.console import add_console

pytestmark = pytest.mark.anyio


def make(file: Path) -> tuple[App, FastAPI]:
    app = App(f"sqlite:///{file}")
    api = make_api(app, open_door=True)
    add_console(api)
    return app, api


def client(api: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://127.0.0.1", timeout=60)


async def test_each_application_answers_of_its_own_store(tmp_path: Path) -> None:
    made = {name: make(tmp_path / f"{name}.db") for name in ("one", "two")}
    for name, (app, _) in made.items():
        await app.enqueue(name.upper(), {})
    for name, (app, api) in made.items():
        async with client(api) as asked:
            answer = (await asked.get("/api/tasks")).json()
            assert [task["kind"] for task in answer["tasks"]] == [name.upper()]
            assert (await asked.get("/readyz")).json()["ready"]
            assert (await asked.get("/ops/queue")).status_code == 200
        api.state.live.close()
        await app.close()


async def ask_and_leave(file: Path) -> weakref.ref[FastAPI]:
    app, api = make(file)
    async with client(api) as asked:
        for path in ("/", "/healthz", "/docs/style.css", "/metrics", "/api/tasks", "/ops/queue"):
            assert (await asked.get(path)).status_code == 200, path
    api.state.live.close()
    await app.close()
    return weakref.ref(api)


async def test_an_application_that_nobody_has_is_forgotten(tmp_path: Path) -> None:
    left = await ask_and_leave(tmp_path / "left.db")
    gc.collect()
    assert left() is None
