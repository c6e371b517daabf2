"""What browsers are told with every answer, and the page that runs scripts."""

from __future__ import annotations

import gzip
import hashlib
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

import redrive.api
from redrive import App
from redrive.api.docs_page import PAGE, compressed
from tests.api.conftest import served

pytestmark = pytest.mark.anyio
EVERYWHERE = {
    "x-content-type-options": "nosniff", "x-frame-options": "DENY", "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}  # fmt: skip


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path}/headers.db")


async def test_every_answer_protects_itself(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(app) as client:
        answers = [await client.get(path) for path in (
            "/", "/healthz", "/readyz", "/api/tasks", "/api/tasks/ops", "/api/tasks/audit-logs/export", "/api/none",
            "/api/tasks?limit=0", "/docs", "/docs/start.js", "/docs/swagger-ui-bundle.js", "/openapi.json", "/none",
        )]  # fmt: skip
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
        found = {name: answer.headers.get(name) for name in EVERYWHERE}
        assert found == EVERYWHERE, answer.url
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"], answer.url
        if answer.url.path.startswith("/api"):
            assert answer.headers["cache-control"] == "no-store"


async def test_what_is_no_http_gets_the_headers_too(app: App) -> None:
    async with served(app) as client:
        parts = urlsplit(str(client.base_url))
        with socket.create_connection((parts.hostname or "", parts.port or 0)) as raw:
            raw.sendall(b"rubbish\r\n\r\n")
            raw.setblocking(False)
            answer = await _read(raw)
    assert answer.startswith(b"HTTP/1.1 400 ") and b"x-frame-options: DENY" in answer


async def _read(raw: socket.socket) -> bytes:
    import asyncio

    return await asyncio.get_running_loop().sock_recv(raw, 10_000)


async def test_the_docs_run_nothing_but_what_is_served_here(app: App) -> None:
    async with served(app) as client:
        page = await client.get("/docs")
        policy = page.headers["content-security-policy"]
        assert "script-src 'self';" in policy and "unsafe-eval" not in policy
        assert "<script>" not in page.text, "nothing inline"
        for path in re.findall(r'(?:src|href)="([^"]+)"', page.text):
            asset = await client.get(f"/{path}")
            assert asset.status_code == 200 and asset.headers["content-type"].startswith("text/")
        plain = await client.get("/docs/swagger-ui.css", headers={"accept-encoding": "identity"})
        assert plain.content == gzip.decompress(compressed("swagger-ui.css"))
        openapi: httpx.Response = await client.get("/openapi.json")
        assert "/api/tasks" in openapi.json()["paths"]
    assert "://" not in PAGE


def test_the_scripts_are_those_that_were_published() -> None:
    said = (Path(redrive.api.__file__).parent / "swagger_ui" / "README.md").read_text()
    for name in ("swagger-ui-bundle.js", "swagger-ui.css"):
        assert f"`{name}`: `{hashlib.sha256(gzip.decompress(compressed(name))).hexdigest()}`" in said
