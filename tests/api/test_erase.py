"""Erasing over HTTP: who may, what is said beforehand, and what is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive import App, Context, Fail
from redrive.observe.logs import TaskLog
from redrive.ops import access
from redrive.ops.access import Role
from redrive.settings import Options
from tests.api.conftest import served

pytestmark = pytest.mark.anyio


@pytest.fixture
def app(tmp_path: Path) -> App:
    made = App(f"sqlite:///{tmp_path}/api.db")

    @made.task("SEND", max_attempts=1)
    async def send(ctx: Context, to: str) -> None:
        raise Fail("TASK_PRECONDITION_FAILED", f"no such user {to}")

    return made


async def work(app: App) -> None:
    await app.worker(await app.store(), Options(concurrency=5, stop_when_empty=True), log=TaskLog(style="off")).run()


async def test_asked_for_approved_and_done(app: App) -> None:
    async with served(app) as client:
        task = await app.enqueue("SEND", {"to": "ann@example"}, scope="user:ann")
        await work(app)
        seen = (await client.post("/api/erase", json={"scope": "user:ann", "dryRun": True})).json()
        assert seen["places"] == {"live": 1, "attempts": 1, "dead_letters": 1, "causes": 1}
        assert seen["operation"] is None
        assert seen["needsApproval"] == "personal data is removed for good" and "backups" in seen["notCovered"]
        asked = await client.post(
            "/api/erase", json={"scope": "user:ann", "reason": "ticket 812"}, headers={"X-Actor": "a"}
        )
        assert asked.status_code == 202 and asked.json()["operation"]["status"] == "waiting"
        approval = asked.json()["approval"]
        assert approval["filter"] == {"scope": "user:ann"} and "user:ann" in approval["needed"]
        done = await client.post(f"/api/approvals/{approval['id']}/approve", headers={"X-Actor": "b"})
        assert done.status_code == 200
        await work(app)
        operation = (await client.get(f"/api/operations/{asked.json()['operation']['id']}")).json()
        assert operation["status"] == "completed" and operation["filter"] == {"scope": "erased"}
        own = f"/api/tasks/{task.id}"
        for path in (
            own,
            f"{own}/timeline",
            "/api/tasks/audit-logs",
            "/api/approvals",
            "/api/failure-groups",
            "/api/tasks/dead-letters",
        ):
            answer = await client.get(path)
            assert "ann" not in answer.text.replace("cannot", ""), path
        retried = await client.post(f"/api/tasks/{task.id}/retry", json={})
        assert retried.status_code == 409


async def test_only_for_administrators_and_only_one_thing(app: App) -> None:
    async with served(app) as client:
        made = await access.create(await app.store(), "op", Role.OPERATOR, actor="root")
        headers = {"Authorization": f"Bearer {made.secret}"}
        refused = await client.post("/api/erase", json={"scope": "x", "dryRun": True}, headers=headers)
        assert refused.status_code == 403
        admin = await access.create(await app.store(), "root", Role.ADMIN, actor="root")
        headers = {"Authorization": f"Bearer {admin.secret}"}
        for body in ({}, {"scope": "x", "taskId": "0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b"}, {"taskId": "no"}):
            assert (await client.post("/api/erase", json=body, headers=headers)).status_code in (400, 404, 422)
        other = await client.post("/api/operations", json={"action": "erase", "scope": "x"}, headers=headers)
        assert other.status_code in (400, 422)
