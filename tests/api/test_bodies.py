"""What a body may hold: values of their own types, and times that can be reckoned with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Context, Fail
from redrive.kernel.reads import CauseQuery
from redrive.observe.logs import TaskLog
from redrive.settings import Options
from tests.api.conftest import served

pytestmark = pytest.mark.anyio
NOBODY = "01a1dd31-8ece-7476-a288-1dbda8bebfb9"
LEASE = {"leaseToken": NOBODY}
WRONG: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/api/tasks/dead-letters/retry", {"jobKind": "SEND", "dryRun": "false"}),
    ("POST", "/api/tasks/dead-letters/retry", {"jobKind": "SEND", "limit": "5"}),
    ("POST", "/api/tasks/dead-letters/retry", {"taskIds": NOBODY}),
    ("POST", "/api/operations", {"jobKind": "SEND", "stopOnReturn": "yes"}),
    ("POST", "/api/operations", {"jobKind": "SEND", "canary": {"first": 1.0}}),
    ("POST", "/api/tasks", {"kind": "SEND", "delay": "5"}),
    ("POST", "/api/tasks", {"kind": "SEND", "delay": True}),
    ("POST", "/api/tasks", {"kind": "SEND", "runAt": "1790000000"}),
    ("POST", "/api/tasks/claim", {"workerId": "w", "queues": "default"}),
    ("POST", f"/api/tasks/{NOBODY}/heartbeat", LEASE | {"leaseSeconds": "60"}),
    ("POST", f"/api/tasks/{NOBODY}/report", LEASE | {"outcome": "failed", "executionMs": "1"}),
    ("POST", "/api/tasks/audit-logs/prune", {"olderThanDays": "5"}),
    ("PUT", "/api/kinds/SEND/limits", {"concurrency": "1"}),
    ("POST", "/api/worker/run", {"maxJobs": "1"}),
    ("PATCH", "/api/failure-groups/{fingerprint}", {"mutedUntil": 4_000_000_000}),
]
ENDS = [
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31",
    "2090-01-01T00:00:00Z",
    "2030-01-01T00:00:00",
]


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    monkeypatch.setenv("INTERNAL_WORKER_SECRET", "x" * 20)
    made = App(f"sqlite:///{tmp_path}/bodies.db")

    @made.task("SEND", max_attempts=1)
    async def send(ctx: Context) -> None:
        raise Fail("TASK_PRECONDITION_FAILED", "no")

    await made.enqueue("SEND")
    await made.worker(await made.store(), Options(stop_when_empty=True), log=TaskLog(style="off")).run()
    return made


async def cause_of(app: App) -> str:
    [row] = await (await app.store()).causes(CauseQuery(1))
    return row.fingerprint


async def test_values_are_not_guessed(app: App) -> None:
    headers = {"authorization": f"Bearer {'x' * 20}"}
    async with served(app) as client:
        fingerprint = await cause_of(app)
        for method, path, body in WRONG:
            wanted = path.format(fingerprint=fingerprint)
            used = headers if path.startswith("/api/worker") else {}
            answer = await client.request(method, wanted, json=body, headers=used)
            assert (answer.status_code, answer.json()["code"]) == (422, "INPUT_INVALID"), (path, body, answer.text)


async def test_what_is_no_number_is_no_number(app: App) -> None:
    async with served(app) as client:
        for number in ("NaN", "Infinity", "-Infinity", "1e999"):
            for path, body in (
                ("/api/tasks/audit-logs/prune", '{"olderThanDays": %s}'),
                ("/api/tasks", '{"kind": "SEND", "delay": %s}'),
                ("/api/tasks", '{"kind": "SEND", "payload": {"x": %s}}'),
                ("/api/operations", '{"jobKind": "SEND", "rate": %s}'),
            ):
                answer = await client.post(path, content=body % number, headers={"content-type": "application/json"})
                assert answer.status_code in (400, 422), (path, answer.text)


async def test_the_ends_of_the_calendar_are_refused(app: App) -> None:
    async with served(app) as client:
        fingerprint = await cause_of(app)
        for moment in ENDS:
            for method, path, body in (
                ("PATCH", f"/api/failure-groups/{fingerprint}", {"mutedUntil": moment}),
                ("POST", "/api/tasks", {"kind": "SEND", "runAt": moment}),
            ):
                answer = await client.request(method, path, json=body)
                assert answer.status_code == 422, (path, answer.text)
            place = await client.get("/api/failure-groups", params={"before": f"{moment}~x"})
            assert place.status_code in (200, 422), place.text
        days = await client.post("/api/tasks/audit-logs/prune", json={"olderThanDays": 1e12})
        assert days.status_code == 422


async def test_nobody_calls_himself_redrive(app: App) -> None:
    async with served(app) as client:
        for name in ("redrive", "System", "APP", "redrive:retention"):
            said = await client.post("/api/queues/default/pause", json={"actor": name})
            assert (said.status_code, said.json()["code"]) == (422, "INPUT_INVALID"), said.text
            shown = await client.get("/api/tasks", headers={"x-actor": name})
            assert shown.status_code == 422
        log = await client.get("/api/tasks/audit-logs")
        assert not [row for row in log.json()["items"] if row["action"].startswith("QUEUE")]
        assert json.loads(log.text)["items"] is not None


async def test_very_many_fields_are_refused_once(app: App) -> None:
    """And not each by itself: 49,000 errors took seconds, in which nobody else was served."""
    many = {f"f{n}": 1 for n in range(20_000)}
    async with served(app) as client:
        for path, body in (
            ("/api/operations", many),
            ("/api/tasks/dead-letters/retry", {"taskIds": list(range(20_000))}),
            ("/api/queues/default/pause", many),
            ("/api/operations", {"canary": many}),
            ("/api/tasks", {"kind": "SEND", **many}),
        ):
            answer = await client.post(path, json=body)
            assert (answer.status_code, len(answer.json()["errors"])) == (422, 1), (path, answer.text[:500])
        assert (
            await client.post("/api/tasks", json={"kind": "SYSTEM_HEALTH_CHECK", "payload": many})
        ).status_code == 201
