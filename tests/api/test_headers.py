"""What browsers are told with every answer, and the page of routes."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI

from redrive import App
from redrive.api.docs_page import render
from tests.api.conftest import served

pytestmark = pytest.mark.anyio
EVERYWHERE = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path}/headers.db")


async def test_every_answer_protects_itself(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(app) as client:
        answers = [
            await client.get(path)
            for path in (
                "/",
                "/healthz",
                "/readyz",
                "/api/tasks",
                "/api/tasks/ops",
                "/api/tasks/audit-logs/export",
                "/api/none",
                "/api/tasks?limit=0",
                "/docs/style.css",
                "/none",
            )
        ]
        answers += [
            await client.post("/api/tasks", content=b"x" * 3_000_000),
            await client.get("/", headers={"host": "evil.example"}),
            await client.get("/api/tasks", headers={"authorization": "Bearer no"}),
        ]
        store = await app.store()
        monkeypatch.setattr(store, "counts", None)  # a mistake of ours
        answers.append(await client.get("/api/tasks/ops"))
    assert [answer.status_code for answer in answers[-4:]] == [413, 400, 401, 500]
    assert answers[-1].json()["code"] == "INTERNAL_ERROR"
    for answer in answers:
        _is_protected(answer)


def _is_protected(answer: httpx.Response) -> None:
    assert {name: answer.headers.get(name) for name in EVERYWHERE} == EVERYWHERE, answer.url
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"], answer.url
    if answer.url.path.startswith("/api"):
        assert answer.headers["cache-control"] == "no-store"


async def test_what_is_no_http_gets_the_headers_too(app: App) -> None:
    async with served(app, port=True) as client:
        parts = urlsplit(str(client.base_url))
        with socket.create_connection((parts.hostname or "", parts.port or 0)) as raw:
            raw.sendall(b"rubbish\r\n\r\n")
            raw.setblocking(False)
            answer = await asyncio.get_running_loop().sock_recv(raw, 10_000)
    assert answer.startswith(b"HTTP/1.1 400 ") and b"x-frame-options: DENY" in answer


async def test_the_docs_tell_of_every_route_and_run_nothing(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    whole = FastAPI.openapi

    def openapi(api: FastAPI) -> dict[str, Any]:
        made.append(threading.current_thread().name)
        return whole(api)

    monkeypatch.setattr(FastAPI, "openapi", openapi)
    async with served(app) as client:
        packed, page = await asyncio.gather(client.get("/openapi.json"), client.get("/docs"))
        plain = await client.get("/openapi.json", headers={"Accept-Encoding": "identity"})
        assert len(made) == 1 and made[0] != threading.main_thread().name, "made once, beside the loop"
        assert packed.json() == plain.json() and "redrive API" in page.text
        assert (packed.headers["Content-Encoding"], plain.headers.get("Content-Encoding")) == ("gzip", None)
        assert int(packed.headers["Content-Length"]) < 0.2 * len(plain.content)
        for answer in (packed, page):
            _is_protected(answer)
        policy = page.headers["content-security-policy"]
        assert "script-src" not in policy and "unsafe" not in policy
        assert "<script" not in page.text and "style=" not in page.text and "://" not in page.text
        for path in re.findall(r'(?:src|href)="([^"#]+)"', page.text):
            asset = await client.get(f"/{path}")
            assert asset.status_code == 200, path
    document = plain.json()
    routes = [(path, method) for path, item in document["paths"].items() for method in item]
    assert len(routes) > 40
    for path, method in routes:
        name = document["paths"][path][method]["operationId"]
        assert f'<article id="{name}"><h3><b class="{method}">{method.upper()}</b> <code>{path}</code>' in page.text
        assert f'<a href="#{name}">' in page.text


def test_what_the_document_says_is_text_on_the_page() -> None:
    odd = "<img src=x onerror=alert(1)>"
    parameter = {"name": odd, "in": "query", "schema": {"type": "string"}, "description": f"`{odd}`"}
    answers = {"200": {"description": odd}}
    told = {"operationId": "a-b", "tags": [odd], "description": odd, "responses": answers, "parameters": [parameter]}
    page = render({"info": {"version": odd, "description": odd}, "paths": {f"/{odd}": {"get": told}}})
    assert "<img" not in page and page.count("&lt;img") > 5
