"""The console, on both stores, and a browser-like client without scripts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from redrive import App, Context, Fail
from redrive.api import make_api
from redrive.cli.support.sockets import LOOPBACK_NAMES
from redrive.console import add_console
from redrive.observe.logs import TaskLog
from redrive.settings import Options
from tests.api.conftest import client_of

HOME = "/ops/queue"


def make_app(url: str) -> App:
    """An application whose one kind fails until it is mended."""
    made = App(url)
    made.mended = False  # type: ignore[attr-defined]

    @made.task("SEND", max_attempts=1)
    async def send(ctx: Context, to: str, password: str = "") -> str:
        if not made.mended:  # type: ignore[attr-defined]
            raise Fail("TASK_PRECONDITION_FAILED", f"the shot {to} is locked {password}")
        return to

    return made


@pytest.fixture
def app(tmp_path: Path) -> App:
    return make_app(f"sqlite:///{tmp_path}/console.db")


@pytest.fixture(params=["sqlite", "postgres"])
def any_app(request: pytest.FixtureRequest, tmp_path: Path) -> App:
    if request.param == "sqlite":
        return make_app(f"sqlite:///{tmp_path}/console.db")
    return make_app(request.getfixturevalue("postgres_url"))


async def work(app: App) -> None:
    await app.worker(await app.store(), Options(concurrency=50, stop_when_empty=True), log=TaskLog(style="off")).run()


async def fail_some(app: App, count: int, **more: Any) -> list[str]:
    tasks = await app.enqueue_many(
        [{"kind": "SEND", "payload": {"to": f"t{n}"}, "scope": "e1", **more} for n in range(count)]
    )
    await work(app)
    return [str(task.id) for task in tasks]


@asynccontextmanager
async def console(app: App, *, port: bool = False, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    await app.store()
    api = make_api(app, None, hosts=LOOPBACK_NAMES, **{"open_door": True, **options})
    add_console(api)
    try:
        async with client_of(api, port) as client:
            client.live = api.state.live  # type: ignore[attr-defined]
            try:
                yield client
            finally:
                api.state.live.close()
    finally:
        await app.close()


async def page(client: httpx.AsyncClient, path: str = "", status: int = 200) -> str:
    """The text of a page."""
    answer = await client.get(HOME + path)
    assert answer.status_code == status, answer.text[:2000]
    return answer.text


def form_token(text: str) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', text)
    assert found, "the page has no form"
    return found[1]


async def send(client: httpx.AsyncClient, path: str, fields: dict[str, Any], seen: str = "") -> httpx.Response:
    """Sends a form of the page ``seen`` as a browser would."""
    token = form_token(await page(client, seen))
    return await client.post(HOME + path, data={"csrf": token, "back": HOME + seen, **fields})


async def done(client: httpx.AsyncClient, path: str, fields: dict[str, Any], seen: str = "") -> str:
    """Sends a form and returns the text of the page that it leads to."""
    answer = await send(client, path, fields, seen)
    assert answer.status_code == 303, answer.text[:2000]
    followed = await client.get(answer.headers["location"])
    assert followed.status_code == 200, followed.text[:2000]
    return followed.text


def text_of(html: str) -> str:
    """What is read of a page, without its tags."""
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html)))
