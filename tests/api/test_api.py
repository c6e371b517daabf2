"""The HTTP face: health, tasks, problems."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Context
from redrive.errors import StoreUnavailable
from redrive.observe.logs import TaskLog
from redrive.settings import Options
from tests.api.conftest import served

pytestmark = pytest.mark.anyio


@pytest.fixture
def app(tmp_path: Path) -> App:
    made = App(f"sqlite:///{tmp_path}/api.db")

    @made.task("SEND")
    async def send(ctx: Context, to: str) -> None:
        pass

    return made


async def test_health_without_a_worker(app: App) -> None:
    async with served(app) as client:
        assert (await client.get("/healthz")).json()["status"] == "ok"
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["ready"], ready.json()["reasons"]) == (200, True, [])
        [store] = ready.json()["dependencies"]
        assert (store["name"], store["ok"]) == ("store", True) and store["lastSuccess"]
        assert (await client.get("/")).json()["healthz"] == "/healthz"


async def test_health_follows_the_worker(app: App) -> None:
    worker = app.worker(await app.store(), Options(), log=TaskLog(style="off"))
    async with served(app, worker) as client:
        early = await client.get("/readyz")
        assert early.status_code == 503
        assert early.json()["reasons"] == ["the worker has not reached the store yet"]
        running = asyncio.create_task(worker.run())
        while worker.health.last_contact == 0:
            await asyncio.sleep(0)
        assert (await client.get("/readyz")).status_code == 200
        health = (await client.get("/healthz")).json()
        assert health["worker_id"] == worker.id
        assert {"uptime_seconds", "running", "counters"} <= set(health)
        worker.stop()
        await running
        stopped = await client.get("/readyz")
        assert (stopped.status_code, stopped.json()["reasons"]) == (503, ["the worker is stopping"])
        assert (await client.get("/healthz")).json()["status"] == "stopping"


async def test_not_ready_when_the_worker_lost_the_store_long_ago(app: App) -> None:
    worker = app.worker(await app.store(), Options(), log=TaskLog(style="off"))
    worker.health.last_contact = time.time() - 3600
    worker.health.store_error = "the wire is cut"
    async with served(app, worker) as client:
        [reason] = (await client.get("/readyz")).json()["reasons"]
        assert "last reached the store 36" in reason and reason.endswith("s ago")


async def test_not_ready_when_the_store_is_gone(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone() -> None:
        raise StoreUnavailable("the wire is cut")

    async with served(app) as client:
        store: Any = await app.store()
        monkeypatch.setattr(store.migrations, "status", gone)
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["reasons"]) == (503, ["the store cannot be used (STORE_UNAVAILABLE)"])
        assert (await client.get("/healthz")).status_code == 200


async def test_enqueue_list_show(app: App) -> None:
    async with served(app) as client:
        body = {"kind": "SEND", "payload": {"to": "a@b.c"}, "scope": "s"}
        made = await client.post("/api/tasks", json=body, headers={"Idempotency-Key": "k"})
        assert made.status_code == 201
        again = await client.post("/api/tasks", json=body, headers={"Idempotency-Key": "k"})
        assert (again.status_code, again.json()["id"]) == (200, made.json()["id"])
        listed = (await client.get("/api/tasks", params={"state": "queued"})).json()
        assert [task["id"] for task in listed["tasks"]] == [made.json()["id"]]
        shown = (await client.get(f"/api/tasks/{made.json()['id']}")).json()
        assert shown["task"]["payload"] == {"to": "a@b.c"}
        assert shown["attempts"] == []


PROBLEMS: list[tuple[str, str, bytes | None, int, str]] = [
    ("POST", "/api/tasks", b'{"kind": "SEND", "payload": {}}', 422, "TASK_PAYLOAD_INVALID"),
    ("POST", "/api/tasks", b'{"kind": "SNED", "payload": {}}', 422, "KIND_UNKNOWN"),
    ("POST", "/api/tasks", b"{", 400, "INPUT_INVALID"),
    ("POST", "/api/tasks", b'{"kind": "SEND", "odd": 1}', 422, "INPUT_INVALID"),
    ("POST", "/api/tasks", b'"' + b"x" * 3_000_000 + b'"', 413, "BODY_TOO_LARGE"),
    ("POST", "/api/tasks/dead-letters/retry", b'{"limit": 501}', 422, "INPUT_INVALID"),
    ("POST", "/api/tasks/dead-letters/retry", b'{"planToken": "x"}', 404, "PLAN_UNKNOWN"),
    ("GET", "/api/tasks/xyz", None, 422, "INPUT_INVALID"),
    ("GET", "/api/tasks/01a1dd31-8ece-7476-a288-1dbda8bebfb9", None, 404, "TASK_NOT_FOUND"),
    ("GET", "/api/tasks?state=odd", None, 422, "INPUT_INVALID"),
    ("GET", "/api/tasks?limit=0", None, 422, "INPUT_INVALID"),
    ("GET", "/api/tasks/dead-letters/preview?traceId=a%00b", None, 422, "INPUT_INVALID"),
    ("GET", "/api/tasks/dead-letters/preview?pageSize=0", None, 422, "INPUT_INVALID"),
    ("GET", "/api/nowhere", None, 404, "NOT_FOUND"),
    ("DELETE", "/api/tasks", None, 405, "METHOD_NOT_ALLOWED"),
]


async def test_problems_are_documents_with_a_code(app: App) -> None:
    async with served(app) as client:
        for method, path, body, status, code in PROBLEMS:
            answer = await client.request(method, path, content=body, headers={"Content-Type": "application/json"})
            assert (answer.status_code, answer.json()["code"]) == (status, code), (method, path, body)
            assert answer.headers["content-type"] == "application/problem+json"
            assert {"type", "title", "status", "code", "detail"} <= set(answer.json())
        foreign = await client.get("/api/tasks", headers={"Host": "evil.example"})
        assert foreign.status_code == 400, "another name for this machine"
