"""Who calls is known before a body is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.api import make_api
from redrive.api.middleware import PlainCookies
from redrive.ops import access
from redrive.ops.access import Role
from tests.api.conftest import served

pytestmark = pytest.mark.anyio
SECRET = "the-secret-of-the-worker"
CHANGES = [
    ("POST", "/api/tasks"),
    ("POST", "/api/tasks/claim"),
    ("POST", "/api/tasks/dead-letters/retry"),
    ("POST", "/api/operations"),
    ("PATCH", "/api/failure-groups/abcd"),
    ("PUT", "/api/kinds/A/limits"),
    ("POST", "/api/worker/run"),
    ("POST", "/api/internal/batch-worker"),
    ("POST", "/api/none"),
]


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    monkeypatch.setenv("INTERNAL_WORKER_SECRET", SECRET)
    return App(f"sqlite:///{tmp_path}/door.db")


async def ask(api: Any, method: str, path: str, token: str | None) -> tuple[int, int, Any]:
    """Status, how often the body was asked for, and the answer."""
    asked, sent = 0, list[Any]()

    async def receive() -> Any:
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    given = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "client": ("127.0.0.1", 0),
        "headers": [(b"content-type", b"application/json"), *given],
        "server": ("testserver", 80),
    }
    await api(scope, receive, send)
    return sent[0]["status"], asked, json.loads(b"".join(part.get("body", b"") for part in sent[1:]) or b"null")


async def test_nothing_is_read_from_those_who_may_not_change(app: App) -> None:
    store = await app.store()
    viewer = await access.create(store, "vic", Role.VIEWER, actor="ann")
    operator = await access.create(store, "olga", Role.OPERATOR, actor="ann")
    api = make_api(app, open_door=True)
    for method, path in CHANGES:
        outside = path.startswith(("/api/worker", "/api/internal"))
        for token, status in ((None, 401), ("wrong", 401), (viewer.secret, 401 if outside else 403)):
            api.state.wrong_tokens.__init__()
            found, asked, answer = await ask(api, method, path, token)
            assert (found, asked) == (status, 0), (path, answer)
    assert (await ask(api, "POST", "/api/operations", operator.secret))[1] > 0
    assert (await ask(api, "PUT", "/api/kinds/A/limits", operator.secret))[0] == 403, "for administrators"
    await app.close()


async def test_the_worker_secret_cannot_be_guessed_for_long(app: App) -> None:
    async with served(app) as client:
        codes = [
            (await client.post("/api/worker/run", json={}, headers={"authorization": f"Bearer {n}"})).status_code
            for n in range(12)
        ]
        assert codes == [401] * 10 + [429] * 2
        wrong = await client.get("/api/tasks", headers={"authorization": "Bearer rdt_x"})
        assert wrong.status_code == 429, "one count for all that is guessed"
        right = await client.post(
            "/api/worker/run", json={"maxSeconds": 1}, headers={"authorization": f"Bearer {SECRET}"}
        )
        assert right.status_code == 200


async def test_small_requests_have_small_bodies(app: App) -> None:
    async with served(app) as client:
        large = b'{"reason": "' + b"x" * 300_000 + b'"}'
        refused = await client.post("/api/operations", content=large, headers={"content-type": "application/json"})
        assert (refused.status_code, refused.json()["code"]) == (413, "BODY_TOO_LARGE")
        taken = await client.post("/api/tasks", json={"kind": "SYSTEM_HEALTH_CHECK", "payload": {"x": "y" * 300_000}})
        assert taken.status_code == 201


MANY_VALUES = {
    "lists": (b"[" + b",".join([b"[]"] * 20_001) + b"]", 413),
    "numbers": (b"[" + b",".join([b"1"] * 50_010) + b"]", 413),
    "deep": (b"[" * 30_000 + b"]" * 30_000, 413),
    "text": (json.dumps('{[,\\",' * 100_000).encode(), 201),
    "fine": (b"[" + b",".join([b"[]"] * 15_000) + b"]", 201),
    "no end": (b"," * 50_001 + b'"' + b'\\"' * 500_000, 413),
}


async def test_very_many_values_are_refused_before_they_are_parsed(app: App) -> None:
    app.declare("X")
    async with served(app) as client:
        for name, (payload, status) in MANY_VALUES.items():
            body = b'{"kind": "X", "payload": ' + payload + b"}"
            answer = await client.post("/api/tasks", content=body, headers={"content-type": "application/json"})
            assert answer.status_code == status, (name, answer.text[:300])
            if status == 413:
                assert answer.json()["code"] == "BODY_TOO_LARGE" and answer.json()["hint"]


async def test_cookies_with_escapes_are_not_read(app: App) -> None:
    """Reading one of them takes quadratic time in many versions of Python."""
    seen = list[bytes]()

    async def framework(scope: Any, _receive: Any, _send: Any) -> None:
        seen.extend(value for name, value in scope["headers"] if name == b"cookie")

    hostile = b'redrive_theme=dark; a="' + b'\\"' * 15_000 + b'"; redrive_name="a/b"'
    headers = [(b"cookie", hostile), (b"x", b"\\"), (b"cookie", b"b=1")]
    await PlainCookies(framework)({"type": "http", "headers": headers}, None, None)  # type: ignore[arg-type]
    assert seen == [b'redrive_theme=dark; redrive_name="a/b"', b"b=1"]
    async with served(app) as client:
        for path in ("/api/tasks", "/healthz"):
            answer = await client.get(path, headers={b"cookie": hostile})
            assert answer.status_code == 200
