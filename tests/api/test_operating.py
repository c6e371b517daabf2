"""Operating failures over HTTP: the dead-letter journey, causes, operations, approvals, audit, executors, access."""

from __future__ import annotations

import asyncio
import csv
import gc
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from fastapi.routing import APIRoute

from redrive import App, Context, Fail, FailureRule
from redrive.api import make_api
from redrive.api.access import _query_names
from redrive.api.failures import RetryIn
from redrive.errors import InvalidTransition, StoreUnavailable
from redrive.observe.logs import TaskLog
from redrive.ops import access
from redrive.ops.access import Role
from redrive.settings import Options
from redrive.worker.worker import Worker
from tests.api.conftest import served

pytestmark = pytest.mark.anyio
SAID = {"fixed": "it is unlocked", "idempotent": True}
LOCKED = Fail("TASK_PRECONDITION_FAILED", "the shot is locked")


@pytest.fixture
def app(tmp_path: Path) -> App:
    made = App(f"sqlite:///{tmp_path}/api.db")
    made.mended = False  # type: ignore[attr-defined]

    @made.task("SEND", max_attempts=1)
    async def send(ctx: Context, to: str, password: str = "", cause: str | None = None) -> str:
        if not made.mended:  # type: ignore[attr-defined]
            raise Fail("TASK_PRECONDITION_FAILED", f"not with {password}", cause=cause) if password else LOCKED
        return to

    return made


async def work(app: App) -> None:
    await app.worker(await app.store(), Options(concurrency=50, stop_when_empty=True), log=TaskLog(style="off")).run()


@asynccontextmanager
async def with_failures(app: App, count: int) -> AsyncIterator[tuple[httpx.AsyncClient, list[str]]]:
    async with served(app) as client:
        tasks = await app.enqueue_many(
            [{"kind": "SEND", "payload": {"to": f"t{n}"}, "scope": "e1"} for n in range(count)]
        )
        await work(app)
        yield client, [str(task.id) for task in tasks]


async def get(client: httpx.AsyncClient, path: str, **params: Any) -> Any:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def post(client: httpx.AsyncClient, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
    answer = await client.post(path, json={} if body is None else body, headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


async def test_the_dead_letter_journey(app: App) -> None:
    async with with_failures(app, 5) as (client, ids):
        base = "/api/tasks/dead-letters"
        first = await get(client, f"{base}/preview", jobKind="SEND", episodeId="e1", page=1, pageSize=3)
        second = await get(client, f"{base}/preview", page=2, pageSize=3, planToken=first["planToken"])
        assert first["total"] == second["total"] == 5
        seen = first["taskIds"] + second["taskIds"]
        assert sorted(seen) == sorted(ids) and len(set(seen)) == 5
        letters = (await get(client, base, errorCode="TASK_PRECONDITION_FAILED"))["deadLetters"]
        assert [letter["deadReason"] for letter in letters] == ["non_retryable"] * 5
        assert (
            "reason is empty" in (await post(client, f"{base}/retry", {"taskIds": ids, "reason": " "}, 422))["detail"]
        )
        dry = await post(client, f"{base}/retry", {"taskIds": ids[:2], "dryRun": True})
        assert (dry["wouldRetry"], dry["retried"], dry["batchId"]) == (ids[:2], [], None) and dry["dryRun"]
        app.mended = True  # type: ignore[attr-defined]
        done = await post(client, f"{base}/retry", {"taskIds": ids[:2], "reason": "mended", "actor": "ann"})
        assert done["retried"] == ids[:2] and done["skipped"] == []
        again = await post(client, f"{base}/retry", {"taskIds": [*ids[:2], str(uuid4())]})
        assert [row["reason"] for row in again["skipped"]] == ["it is queued, not failed or cancelled"] * 2 + [
            "not found"
        ]
        ops = await get(
            client, "/api/tasks/ops", auditAction="TASK_RETRY_BATCH_ITEM", auditActor="ann", auditPageSize=1
        )
        assert ops["totals"]["failed"] == 3 and ops["kinds"]["SEND"]["deadLetter"] == ops["deadLetters"] == 5
        assert len(ops["recentAuditLogs"]) == 1 and ops["auditMore"] is True
        rows = await get(client, "/api/tasks/audit-logs", batchId=done["batchId"])
        assert sorted(row["action"] for row in rows["items"]) == ["TASK_RETRY_BATCH_ITEM"] * 2 + [
            "TASK_RETRY_BATCH_SUMMARY"
        ]
        plan = await post(client, f"{base}/retry", {"planToken": first["planToken"]})
        assert len(plan["retried"]) == 3 and len(plan["skipped"]) == 2
        await work(app)
        assert (await get(client, "/api/tasks/ops"))["totals"] == {
            "queued": 0,
            "delayed": 0,
            "running": 0,
            "paused": 0,
            "failed": 0,
            "completed": 5,
            "cancelled": 0,
        }


async def test_one_task(app: App) -> None:
    async with with_failures(app, 1) as (client, [task_id]):
        shown = await get(client, f"/api/tasks/{task_id}")
        assert [reason["code"] for reason in shown["why"]] == ["failed"]
        assert (shown["task"]["errorCode"], shown["task"]["deadReason"]) == (
            "TASK_PRECONDITION_FAILED",
            "non_retryable",
        )
        assert len(shown["attempts"]) == len(shown["deadLetters"]) == 1
        retried = await post(client, f"/api/tasks/{task_id}/retry", {"reason": "r"}, **{"X-Actor": "ann"})
        assert (retried["state"], retried["lastReplayedBy"]) == ("queued", "ann")
        refused = await post(client, f"/api/tasks/{task_id}/retry", status=409)
        assert refused["code"] == "TRANSITION_INVALID"
        await post(client, f"/api/tasks/{task_id}/pause")
        assert [r["code"] for r in (await get(client, f"/api/tasks/{task_id}"))["why"]] == ["paused"]
        await post(client, f"/api/tasks/{task_id}/resume")
        assert (await post(client, f"/api/tasks/{task_id}/cancel"))["state"] == "cancelled"
        await post(client, f"/api/tasks/{uuid4()}/cancel", status=404)


async def test_causes_and_operations(app: App) -> None:
    async with with_failures(app, 6) as (client, _):
        [group] = (await get(client, "/api/failure-groups"))["groups"]
        assert (group["status"], group["failed"], group["kinds"]) == ("open", 6, {"SEND": 6})
        path = f"/api/failure-groups/{group['fingerprint']}"
        changed = (await client.patch(path, json={"note": "locked", "owner": "ann", "resolved": True})).json()
        assert (changed["note"], changed["owner"], changed["status"]) == ("locked", "ann", "resolved")
        assert (await client.patch(path, json={"mutedUntil": "2030-01-01T00:00:00"})).status_code == 422
        begun = await post(client, f"{path}/retry", {"canary": {"first": 2}, "reason": "r"}, 202)
        operation = begun["operation"]
        assert (operation["total"], operation["status"], begun["approval"]) == (6, "running", None)
        app.mended = True  # type: ignore[attr-defined]
        where = f"/api/operations/{operation['id']}"
        assert (await post(client, f"{where}/pause"))["status"] == "paused"
        assert (await post(client, f"{where}/resume"))["status"] == "running"
        worker = app.worker(await app.store(), Options(concurrency=10), log=TaskLog(style="off"))
        running = asyncio.create_task(worker.run())
        while (ended := await get(client, where))["status"] == "running":
            await asyncio.sleep(0.05)
        worker.stop()
        await running
        assert (ended["done"], ended["progress"], ended["canary"]["passed"]) == (6, 1.0, True)
        assert (await post(client, f"{where}/cancel", status=409))["code"] == "TRANSITION_INVALID"
        listed = await get(client, "/api/operations", status="completed")
        assert [found["id"] for found in listed["operations"]] == [operation["id"]]
        assert (await client.get("/api/operations/nonsense")).status_code == 404


async def test_what_needs_a_second_person_is_not_retried_at_once(app: App) -> None:
    app.settings.approvals_above = 3
    async with with_failures(app, 2) as (client, ids):
        path = "/api/tasks/dead-letters"
        everything = {"planToken": (await get(client, f"{path}/preview"))["planToken"]}
        refused = await post(client, f"{path}/retry", everything, 409)
        assert refused["code"] == "APPROVAL_NEEDED" and "/api/operations" in refused["hint"]
        assert "everything is retried" in refused["detail"]
        for n in range(3):
            ids.append(str((await app.enqueue("SEND", {"to": f"late {n}"})).id))
        await work(app)
        await post(client, f"{path}/retry", everything, 409)  # also when more has failed since
        for body in ({"jobKind": "SEND"}, {"taskIds": ids}):
            assert "5 tasks are more than 3" in (await post(client, f"{path}/retry", body, 409))["detail"]
        assert (await get(client, "/api/tasks/failed"))["total"] == 5
        for body in ({"jobKind": "SEND", "limit": 2}, {"limit": 2}):
            told = await post(client, f"{path}/retry", {**body, "dryRun": True})
            assert told["needsApproval"] is None and len(told["wouldRetry"]) == 2, "so few need nobody else"
        assert len((await post(client, f"{path}/retry", {"taskIds": ids[:3]}))["retried"]) == 3
        narrow = await get(client, f"{path}/preview", jobKind="SEND")
        split = await post(client, f"{path}/retry", {"planToken": narrow["planToken"]}, 409)
        assert "2 tasks and the 3 of api within 60 minutes are more than 3" in split["detail"]
        other = {"planToken": narrow["planToken"], "actor": "bob"}
        assert len((await post(client, f"{path}/retry", other))["retried"]) == 2


async def test_a_preview_says_which_of_the_named_tasks_would_be_skipped(app: App) -> None:
    async with with_failures(app, 2) as (client, ids):
        path, nobody = "/api/tasks/dead-letters", str(uuid4())
        await post(client, f"{path}/retry", {"taskIds": ids[:1], "reason": "mended"})
        seen = await get(client, f"{path}/preview", taskIds=[*ids, nobody])
        assert (seen["total"], seen["taskIds"]) == (1, ids[1:])
        assert seen["skipped"] == [
            {"taskId": ids[0], "reason": "it is queued, not failed or cancelled"},
            {"taskId": nobody, "reason": "not found"},
        ]


async def test_preview_and_retry_take_the_same_names(app: App) -> None:
    """All of them: what was looked at with some filter can be retried with it."""
    [route] = [one for one in make_api(app).routes if getattr(one, "path", "") == "/api/tasks/dead-letters/preview"]
    assert isinstance(route, APIRoute)
    asked = _query_names(route.dependant)
    body = set(RetryIn.model_json_schema()["properties"])
    assert asked - {"page", "pageSize", "connection"} == body - {"dryRun", "reason", "actor"}
    assert {"episodeId", "jobKind", "traceId", "deadReason", "errorCode", "taskIds", "limit"} <= asked
    async with with_failures(app, 3) as (client, _):
        path = "/api/tasks/dead-letters"
        seen = await get(client, f"{path}/preview", jobKind="SEND", limit=1)
        done = await post(client, f"{path}/retry", {"jobKind": "SEND", "limit": 1})
        assert (seen["total"], seen["taskIds"]) == (1, done["retried"])


async def test_a_preview_writes_no_more_than_it_must(app: App) -> None:
    async with with_failures(app, 3) as (client, _):
        path, store = "/api/tasks/dead-letters/preview", await app.store()
        first, second = [await get(client, path) for _ in range(2)]
        assert first["planToken"] == second["planToken"], "nothing has changed"
        foreign = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        assert (await client.get(path, params={"jobKind": "SEND"}, headers=foreign)).json()["planToken"] is None
        assert len(await store.records("plan")) == 1


async def test_lists_go_on_where_they_were(app: App) -> None:
    """By cursor: what fails, or is asked for, while somebody turns pages does not shift them."""
    async with with_failures(app, 5) as (client, ids):
        first = await get(client, "/api/tasks/failed", limit=2)
        await app.enqueue("SEND", {"to": "late"})
        await work(app)
        assert (await get(client, "/api/tasks/failed/statistics"))["byKind"] == {"SEND": 6}
        rest = await get(client, "/api/tasks/failed", limit=9, before=first["nextBefore"])
        assert sorted(task["id"] for task in first["tasks"] + rest["tasks"]) == sorted(ids)
        assert rest["nextBefore"] is None
        for n in range(3):
            await app.enqueue("SEND", {"to": "x", "password": f"key {n}", "cause": f"key {n}"})
            await work(app)
        seen, page = [], await get(client, "/api/failure-groups", limit=1)
        while True:
            seen += [group["message"] for group in page["groups"]]
            if page["nextBefore"] is None:
                break
            page = await get(client, "/api/failure-groups", limit=1, before=page["nextBefore"])
        assert len(seen) == len(set(seen)) == 4
        assert (await client.get("/api/failure-groups", params={"before": "rubbish"})).status_code == 422
        for _ in range(3):
            await post(client, "/api/operations", {"action": "forget", **SAID}, 202)
        top = await get(client, "/api/approvals", limit=2)
        await post(client, "/api/operations", {"action": "forget", **SAID}, 202)
        under = await get(client, "/api/approvals", limit=2, before=top["nextBefore"])
        assert len(top["approvals"]) == 2 and len(under["approvals"]) == 1


async def test_approvals(app: App) -> None:
    async with with_failures(app, 2) as (client, _):
        dry = await post(client, "/api/operations", {"action": "forget", "dryRun": True}, 202)
        assert (dry["matched"], dry["operation"]) == (2, None)
        begun = await post(client, "/api/operations", {"action": "forget", "actor": "ann", **SAID}, 202)
        approval = begun["approval"]
        assert (approval["needed"], begun["operation"]["status"]) == ("all failures are given up", "waiting")
        path = f"/api/approvals/{approval['id']}/approve"
        assert (await post(client, path, {"actor": "ann"}, 403))["code"] == "NOT_ALLOWED"
        assert (await post(client, path, {"actor": "bob"}))["state"] == "approved"
        [listed] = (await get(client, "/api/approvals"))["approvals"]
        assert listed["decidedBy"] == "bob"
        assert {name: listed[name] for name in SAID} == {name: begun["operation"][name] for name in SAID} == SAID
        await post(client, "/api/operations", {"action": "retry", "fixed": "it"}, 422)


async def test_audit_export_and_prune(app: App) -> None:
    async with with_failures(app, 3) as (client, ids):
        await post(client, "/api/tasks/dead-letters/retry", {"taskIds": ids, "reason": "=cmd()", "actor": "ann"})
        text = (await client.get("/api/tasks/audit-logs/export", params={"format": "csv", "episodeId": "e1"})).text
        rows = list(csv.DictReader(io.StringIO(text)))
        assert {row["task_id"] for row in rows} == set(ids) and {row["reason"] for row in rows} == {"'=cmd()"}
        assert len((await client.get("/api/tasks/audit-logs/export", params={"jobKind": "SEND"})).json()) == 3
        hour = await client.get("/api/tasks/audit-logs/export", params={"since": "1h", "jobKind": "SEND"})
        assert len(hour.json()) == 3 and "_kind-SEND_since-" in hour.headers["content-disposition"]
        assert (await get(client, "/api/tasks/audit-logs", since="2h", until="1h"))["items"] == []
        dry = await post(client, "/api/tasks/audit-logs/prune", {"olderThanDays": 0, "dryRun": True})
        assert dry["matched"] == 4
        done = await post(
            client, "/api/tasks/audit-logs/prune", {"olderThanDays": 0, "auditAction": "TASK_RETRY_BATCH_ITEM"}
        )
        assert done["removed"] == 3
        left = await get(client, "/api/tasks/audit-logs")
        assert [row["action"] for row in left["items"]] == ["TASK_AUDIT_PRUNE_SUMMARY", "TASK_RETRY_BATCH_SUMMARY"]


async def test_queues_kinds_and_workers(app: App) -> None:
    async with with_failures(app, 2) as (client, _):
        queues = {queue["name"]: queue for queue in await get(client, "/api/queues")}
        assert (queues["default"]["totals"]["failed"], queues["default"]["paused"]) == (2, None)
        paused = await post(client, "/api/queues/default/pause", {"reason": "look", "actor": "ann"})
        assert paused == {"target": "queue", "name": "default", "paused": True, "changed": True}
        [queue] = [queue for queue in await get(client, "/api/queues") if queue["name"] == "default"]
        assert (queue["paused"]["actor"], queue["paused"]["reason"]) == ("ann", "look")
        await post(client, "/api/queues/default/resume")
        assert (await post(client, "/api/queues/nowhere/pause", status=422))["code"] == "QUEUE_UNKNOWN"
        limited = await client.put("/api/kinds/SEND/limits", json={"concurrency": 3, "rateLimitMs": 50})
        assert (limited.json()["concurrency"], limited.json()["rateLimitMs"]) == (3, 50)
        kinds = {kind["name"]: kind for kind in await get(client, "/api/kinds")}
        assert kinds["SEND"]["concurrency"] == 3 and kinds["SEND"]["deadLetters"] == 2
        assert (await post(client, "/api/kinds/SEND/pause"))["changed"]
        assert (await post(client, "/api/task-groups/g/pause"))["changed"]
        assert (await get(client, "/api/workers"))[0]["alive"] is False  # it has said goodbye


class TestExecutor:
    async def claimed(self, app: App, client: httpx.AsyncClient, **options: Any) -> dict[str, Any]:
        await app.enqueue("SEND", {"to": "x"}, max_attempts=2)
        [task] = await post(client, "/api/tasks/claim", {"workerId": "farm-1", "leaseSeconds": 60, **options})
        return dict(task)

    async def test_claimed_kept_and_completed(self, app: App) -> None:
        async with served(app) as client:
            task = await self.claimed(app, client)
            assert (task["payload"], task["attempt"]) == ({"to": "x"}, 1)
            path = f"/api/tasks/{task['id']}"
            beat = {"leaseToken": task["leaseToken"], "progress": 0.5}
            assert await post(client, f"{path}/heartbeat", beat) == {"cancelled": []}
            assert (await get(client, path))["task"]["progress"] == 0.5
            body = {
                "leaseToken": task["leaseToken"],
                "outcome": "completed",
                "result": {"frames": 3},
                "executionMs": 12,
            }
            done = await post(client, f"{path}/report", body)
            assert (done["state"], done["result"], done["workerId"]) == ("completed", {"frames": 3}, "farm-1")
            assert (await post(client, f"{path}/report", body))["state"] == "completed"  # the same again
            late = {**body, "leaseToken": str(uuid4())}
            assert (await post(client, f"{path}/report", late, 409))["code"] == "LEASE_LOST"
            assert (await client.post(f"{path}/heartbeat", json=beat)).status_code == 409

    async def test_other_ends(self, app: App) -> None:
        async with served(app) as client:
            for report, state, attempts in (
                ({"outcome": "failed", "errorMessage": "no disk"}, "delayed", 1),
                ({"outcome": "failed", "errorCode": "TASK_ENTITY_NOT_FOUND"}, "failed", 1),
                ({"outcome": "failed", "retryAfterSeconds": 0}, "queued", 1),
                ({"outcome": "cancelled"}, "cancelled", 1),
                ({"outcome": "released"}, "queued", 0),
            ):
                task = await self.claimed(app, client)
                body = {"leaseToken": task["leaseToken"], **report}
                done = await post(client, f"/api/tasks/{task['id']}/report", body)
                assert (done["state"], done["attemptCount"]) == (state, attempts), report
                if state == "queued":
                    await post(client, f"/api/tasks/{task['id']}/cancel")  # else it is the next one that is claimed

    async def test_when_it_is_tried_again(self, app: App) -> None:
        """The wish of the executor, whatever else it says: neither the backoff nor more."""
        async with served(app) as client:
            for seconds, more in ((0.5, {}), (5000, {"errorReason": "http_5xx"})):
                task = await self.claimed(app, client)
                report = {"leaseToken": task["leaseToken"], "outcome": "failed", "retryAfterSeconds": seconds, **more}
                done = await post(client, f"/api/tasks/{task['id']}/report", report)
                [attempt] = (await get(client, f"/api/tasks/{task['id']}"))["attempts"]
                waits = datetime.fromisoformat(done["nextAttemptAt"]) - datetime.fromisoformat(attempt["at"])
                assert waits.total_seconds() == pytest.approx(seconds, abs=0.01)  # both by the store's clock

    async def test_a_task_of_any_size_is_reported(self, app: App) -> None:
        ends: dict[str, tuple[dict[str, Any], str]] = {
            "completed": ({"result": {"n": 1}}, "completed"),
            "failed": ({"errorCode": "CARD_DECLINED", "errorMessage": "no money"}, "failed"),
            "cancelled": ({}, "cancelled"),
            "released": ({}, "queued"),
        }
        app.declare("REMOTE")
        async with served(app) as client:
            for outcome, (more, state) in ends.items():
                task = await app.enqueue("REMOTE", {"text": "x" * 1_000_000})
                [mine] = await post(client, "/api/tasks/claim", {"workerId": "far", "leaseSeconds": 60})
                body = {"leaseToken": mine["leaseToken"], "outcome": outcome, **more}
                assert (await post(client, f"/api/tasks/{task.id}/report", body))["state"] == state

    async def test_a_cancel_is_heard_of_with_the_heartbeat(self, app: App) -> None:
        async with served(app) as client:
            task = await self.claimed(app, client)
            path, token = f"/api/tasks/{task['id']}", {"leaseToken": task["leaseToken"]}
            await post(client, f"{path}/cancel", {"reason": "ordered twice"})
            assert await post(client, f"{path}/heartbeat", token) == {"cancelled": [task["id"]]}
            done = await post(client, f"{path}/report", {**token, "outcome": "cancelled"})
            assert done["state"] == "cancelled"

    async def test_a_failure_is_kept_with_stack_reason_and_type(self, app: App) -> None:
        async with served(app) as client:
            task = await self.claimed(app, client)
            told = {"errorReason": "http_5xx", "failureType": "model_error", "errorStack": "at render.js:7\n" * 2000}
            body = {"leaseToken": task["leaseToken"], "outcome": "failed", "errorMessage": "the GPU is gone", **told}
            await post(client, f"/api/tasks/{task['id']}/report", {**body, "failureType": "nonsense"}, 422)
            await post(client, f"/api/tasks/{task['id']}/report", body)
            [attempt] = (await get(client, f"/api/tasks/{task['id']}"))["attempts"]
            assert (attempt["reason"], attempt["failureType"]) == ("http_5xx", "model_error")
            assert attempt["stack"].startswith("at render.js:7") and len(attempt["stack"]) <= 16_000

    async def test_a_reason_is_a_name(self, app: App) -> None:
        """Viewers see reasons: what somebody writes there as a sentence belongs to the message."""
        async with served(app) as client:
            task = await self.claimed(app, client)
            said = {"errorReason": "card 4711 of ann was refused", "errorMessage": "no"}
            await post(
                client,
                f"/api/tasks/{task['id']}/report",
                {"leaseToken": task["leaseToken"], "outcome": "failed", **said},
            )
            [attempt] = (await get(client, f"/api/tasks/{task['id']}"))["attempts"]
            assert attempt["reason"] == "reported" and "no (card 4711 of ann was refused)" in attempt["message"]

    async def test_only_what_it_handles(self, app: App) -> None:
        async with served(app) as client:
            await app.enqueue("SYSTEM_HEALTH_CHECK")
            assert await post(client, "/api/tasks/claim", {"workerId": "f", "kinds": ["SEND"]}) == []
            assert await post(client, "/api/tasks/claim", {"workerId": "f", "queues": ["bad name!"]}, 422)


class TestAccess:
    async def test_from_the_first_token_on_everybody_needs_one(self, app: App) -> None:
        async with with_failures(app, 1) as (client, [task_id]):
            made = await access.create(await app.store(), "ann", Role.OPERATOR, actor="root")
            refused = await client.get("/api/tasks")
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            mine = {"Authorization": f"Bearer {made.secret}"}
            assert (await client.get("/api/tasks", headers=mine)).status_code == 200
            body = {"actor": "somebody else"}
            retried = await client.post(f"/api/tasks/{task_id}/retry", json=body, headers={**mine, "X-Actor": "bob"})
            assert retried.json()["lastReplayedBy"] == "ann", "a token's name cannot be talked away"
            assert (await client.get("/healthz")).status_code == 200

    async def test_roles(self, app: App) -> None:
        async with with_failures(app, 1) as (client, [task_id]):
            store = await app.store()
            tokens = {role: (await access.create(store, role.label, role, actor="root")).secret for role in Role}

            async def status(role: Role, method: str, path: str, body: Any = None) -> int:
                headers = {"Authorization": f"Bearer {tokens[role]}"}
                return (await client.request(method, path, json=body, headers=headers)).status_code

            assert await status(Role.VIEWER, "GET", "/api/tasks/ops") == 200
            assert await status(Role.VIEWER, "POST", f"/api/tasks/{task_id}/retry") == 403
            assert await status(Role.VIEWER, "POST", "/api/tasks", {"kind": "SEND", "payload": {"to": "x"}}) == 403
            assert await status(Role.OPERATOR, "POST", f"/api/tasks/{task_id}/retry") == 200
            assert await status(Role.OPERATOR, "PUT", "/api/kinds/SEND/limits", {"concurrency": 1}) == 403
            assert await status(Role.OPERATOR, "POST", "/api/tasks/audit-logs/prune", {"olderThanDays": 1}) == 403
            assert (
                await status(Role.OPERATOR, "POST", "/api/operations", {"action": "purge", "queue": "default"}) == 403
            )
            assert await status(Role.ADMIN, "PUT", "/api/kinds/SEND/limits", {"concurrency": 1}) == 200
            assert await status(Role.ADMIN, "POST", "/api/operations", {"action": "purge", "queue": "default"}) == 202

    async def test_a_viewer_sees_no_secrets(self, app: App) -> None:
        async with served(app) as client:
            await app.enqueue("SEND", {"to": "x", "password": "hunter2"})
            await work(app)
            store = await app.store()
            begun = await post(client, "/api/operations", {"jobKind": "SEND", "canary": {"first": 1}}, 202)
            while (await get(client, f"/api/operations/{begun['operation']['id']}"))["status"] != "stopped":
                await work(app)
            assert "not with hunter2" in (await client.get("/api/failure-groups")).text
            whole = {"to": "x", "password": "hunter2"}
            for role, shown in ((Role.VIEWER, None), (Role.OPERATOR, whole)):
                secret = (await access.create(store, role.label, role, actor="root")).secret
                client.headers["Authorization"] = f"Bearer {secret}"
                [task] = (await get(client, "/api/tasks"))["tasks"]
                assert task["payload"] == shown
                assert (task["errorMessage"] is None) == (role is Role.VIEWER)
                assert task["errorSummary"]["message"]
                letter, *_ = (await get(client, "/api/tasks/dead-letters"))["deadLetters"]
                assert letter["payload"] == shown
                document = await client.get(f"/api/tasks/{task['id']}/payload")
                assert document.status_code == (403 if role is Role.VIEWER else 200)
                if role is Role.VIEWER:
                    for path in (
                        "/api/tasks",
                        "/api/tasks/ops",
                        "/api/tasks/failed",
                        "/api/tasks/dead-letters/preview",
                        f"/api/tasks/{task['id']}",
                        "/api/failure-groups",
                        "/api/operations",
                        "/api/tasks/audit-logs",
                    ):
                        assert "hunter2" not in (await client.get(path)).text, path

    async def test_nor_once_the_task_has_completed(self, app: App) -> None:
        async with served(app) as client:
            task = await app.enqueue("SEND", {"to": "x", "password": "hunter2"})
            await work(app)
            app.mended = True  # type: ignore[attr-defined]
            await post(client, f"/api/tasks/{task.id}/retry")
            await work(app)
            assert (await get(client, f"/api/tasks/{task.id}"))["attempts"][0]["message"] == "not with hunter2"
            secret = (await access.create(await app.store(), "eve", Role.VIEWER, actor="root")).secret
            client.headers["Authorization"] = f"Bearer {secret}"
            assert (await get(client, f"/api/tasks/{task.id}"))["attempts"][0]["message"] is None
            for path in (f"/api/tasks/{task.id}", "/api/failure-groups", "/api/tasks/dead-letters"):
                assert "hunter2" not in (await client.get(path)).text, path

    async def test_guessing_is_refused_and_locks_nobody_out(self, app: App) -> None:
        async with served(app) as client:
            good = (await access.create(await app.store(), "ann", Role.ADMIN, actor="root")).secret
            wrong = {"Authorization": "Bearer rdt_000000000000_x"}
            for _ in range(10):
                assert (await client.get("/api/tasks", headers=wrong)).status_code == 401
            blocked = await client.get("/api/tasks", headers=wrong)
            assert (blocked.status_code, blocked.headers["retry-after"]) == (429, "60")
            assert (await client.get("/api/tasks", headers={"Authorization": f"Bearer {good}"})).status_code == 200

    async def test_the_last_token_revoked_opens_no_door(self, app: App) -> None:
        async with served(app) as client:
            store = await app.store()
            made = await access.create(store, "ann", Role.ADMIN, actor="root")
            await access.revoke(store, made.record.id, actor="root")
            assert (await client.get("/api/tasks")).status_code == 401

    async def test_pages_of_other_sites_may_not_act(self, app: App) -> None:
        async with with_failures(app, 1) as (client, _):
            for headers in (
                {"Origin": "https://evil.example"},
                {"Origin": "http://[evil"},
                {"Origin": "null"},
                {"Sec-Fetch-Site": "cross-site"},
            ):
                answer = await client.post(
                    "/api/queues/default/pause", headers={**headers, "Content-Type": "text/plain"}
                )
                assert (answer.status_code, answer.json()["code"]) == (403, "NOT_ALLOWED")
            own = {"Origin": str(client.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
            assert (await client.post("/api/queues/default/pause", headers=own)).status_code == 200

    async def test_a_viewer_sees_neither_stacks_nor_quoted_secrets_and_makes_no_plan(self, app: App) -> None:
        @app.task("LEAK", max_attempts=1)
        async def leak(ctx: Context, password: str) -> None:
            raise ValueError(f"cannot log in with {password}")

        async with served(app) as client:
            task = await app.enqueue("LEAK", {"password": "hunter2"})
            await work(app)
            store = await app.store()
            secret = (await access.create(store, "v", Role.VIEWER, actor="root")).secret
            client.headers["Authorization"] = f"Bearer {secret}"
            shown = await client.get(f"/api/tasks/{task.id}")
            assert "hunter2" not in shown.text and shown.json()["task"]["errorStack"] is None
            assert (await get(client, "/api/tasks/dead-letters/preview"))["planToken"] is None
            assert await store.records("plan") == []

    async def test_a_viewer_reads_what_doctor_says_without_words_of_tasks(self, app: App) -> None:
        async with with_failures(app, 1) as (client, _):
            store = await app.store()
            found = {}
            for role in (Role.OPERATOR, Role.VIEWER):
                secret = (await access.create(store, role.label, role, actor="root")).secret
                client.headers["Authorization"] = f"Bearer {secret}"
                found[role] = await get(client, "/api/doctor")
            whole, masked = found[Role.OPERATOR], found[Role.VIEWER]
            assert whole["worst"] in ("warning", "critical") and "the shot is locked" in str(whole)
            assert len(masked["findings"]) == len(whole["findings"]) and "the shot is locked" not in str(masked)
            assert (await client.get("/api/doctor", params={"queue": "nope"})).json()["code"] == "QUEUE_UNKNOWN"

    async def test_a_door_that_is_not_open(self, app: App) -> None:
        async with served(app, open_door=False) as client:
            assert (await client.get("/api/tasks")).status_code == 401


async def test_hostile_filters_stay_data(app: App) -> None:
    async with with_failures(app, 1) as (client, _):
        for text in ("'; drop table redrive_task; --", "%s%n", "\\u0000x", "𝕏" * 50, "a' or '1'='1"):
            found = await get(client, "/api/tasks/dead-letters/preview", traceId=text, episodeId=text)
            assert found["total"] == 0
            for name in ("jobKind", "queue", "fingerprint"):
                refused = await client.get("/api/tasks/dead-letters/preview", params={name: text})
                assert refused.status_code in (404, 422) and refused.json()["code"].endswith("_UNKNOWN"), text
            assert (await get(client, "/api/tasks/failed", jobKind=text, errorCode=text))["total"] == 0
            assert (await get(client, "/api/tasks/ops", auditActor=text))["totals"]["failed"] == 1


class TestWokenByHttp:
    """``POST /api/worker/run`` does what is due, for whoever has the secret."""

    SECRET = "a-secret-of-this-test"

    async def run(self, client: httpx.AsyncClient, secret: str = SECRET, status: int = 200, **body: Any) -> Any:
        return await post(client, "/api/worker/run", body, status, authorization=f"Bearer {secret}")

    @pytest.fixture
    def app(self, app: App) -> App:
        app.settings.internal_worker_secret = self.SECRET
        app.mended = True  # type: ignore[attr-defined]
        return app

    async def test_what_is_due_is_done(self, app: App) -> None:
        async with served(app) as client:
            await app.enqueue_many([("SEND", {"to": str(n)}) for n in range(5)])
            some = await self.run(client, maxJobs=2)
            assert (some["completed"], some["drained"]) == (2, False)
            rest = await self.run(client)
            assert (rest["claimed"], rest["completed"], rest["drained"]) == (3, 3, True)
            assert rest["workerId"] != some["workerId"]
            assert (await self.run(client))["claimed"] == 0

    async def test_bulk_operations_go_on(self, app: App) -> None:
        app.mended = False  # type: ignore[attr-defined]
        async with with_failures(app, 7) as (client, _):
            app.mended = True  # type: ignore[attr-defined]
            begun = await post(client, "/api/operations", {"jobKind": "SEND", "canary": {"first": 2}}, 202)
            await asyncio.sleep(1)  # the worker before this one had the duty a moment ago
            done = await self.run(client)
            assert (done["completed"], done["drained"]) == (7, True)
            operation = await get(client, f"/api/operations/{begun['operation']['id']}")
            assert (operation["status"], operation["done"]) == ("completed", 7)
            counts = {"retried": 7, "completed": 7, "failedAgain": 0, "cancelled": 0, "running": 0, "waiting": 0}
            assert operation["tasks"].items() >= {**counts, "waitsBecause": None}.items()

    async def test_only_with_the_secret(self, app: App) -> None:
        async with served(app) as client:
            token = (await access.create(await app.store(), "ann", Role.ADMIN, actor="cli")).secret
            for wrong in ("x", token, self.SECRET[:-1]):
                assert (await self.run(client, wrong, 401))["code"] == "UNAUTHORIZED"
            assert (await client.post("/api/worker/run")).status_code == 401
            assert (
                await client.get("/api/tasks", headers={"authorization": f"Bearer {self.SECRET}"})
            ).status_code == 401
            for _ in range(6):
                answer = await client.post("/api/worker/run", headers={"authorization": "Bearer guess"})
            assert answer.status_code == 429
            assert (await self.run(client))["drained"]
            app.settings.internal_worker_secret = None
            assert "INTERNAL_WORKER_SECRET" in (await self.run(client, status=403))["hint"]

    async def test_queues_that_are_none(self, app: App) -> None:
        async with served(app) as client:
            for name in ("nosuch", "a b", "", "\x00", "q" * 5000):
                assert (await self.run(client, status=422, queues=[name]))["code"] in ("INPUT_INVALID", "QUEUE_UNKNOWN")
            assert (await self.run(client, queues=["default"]))["drained"]

    async def test_no_run_begins_in_a_process_that_stops(self, app: App) -> None:
        api = make_api(app)
        api.state.triggered.halt()
        with pytest.raises(InvalidTransition, match="stopping"):
            await api.state.triggered.run(app.worker(await app.store()))
        await app.close()

    async def test_a_run_rides_a_short_outage_out(self, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = 0

        async def flaky(*_: Any) -> Any:
            nonlocal asked
            asked += 1
            if asked == 1:
                raise StoreUnavailable("the wire is cut")
            return ()

        async with served(app) as client:
            monkeypatch.setattr("redrive.ops.operations.drive.has_work", flaky)
            assert (await self.run(client))["drained"] and asked > 1

    async def test_runs_leave_nothing_behind(self, app: App) -> None:
        async with served(app) as client:
            await self.run(client)
            before = _workers()
            for _ in range(3):
                await self.run(client)
            assert _workers() == before

    async def test_one_run_at_a_time(self, app: App) -> None:
        begun, gate = asyncio.Event(), asyncio.Event()

        @app.task("SLOW")
        async def slow(ctx: Context) -> None:
            begun.set()
            await gate.wait()

        async with served(app) as client:
            await app.enqueue("SLOW")
            first = asyncio.create_task(self.run(client))
            await begun.wait()
            assert "under way" in (await self.run(client, status=409))["detail"]
            gate.set()
            assert (await first)["completed"] == 1


def _workers() -> int:
    gc.collect()
    return sum(type(found) is Worker for found in gc.get_objects())


async def test_how_things_went(app: App) -> None:
    async with with_failures(app, 3) as (client, _):
        app.mended = True  # type: ignore[attr-defined]
        await app.enqueue("SEND", {"to": "t"})
        await work(app)
        await (await app.store()).upkeep("series")
        found = await get(client, "/api/history", period="1h", kind="SEND")
        assert (found["period"], found["kind"], found["stepSeconds"], len(found["moments"])) == ("1h", "SEND", 60, 60)
        assert sum(n or 0 for n in found["completed"]) == 1 and sum(n or 0 for n in found["failed"]) == 3
        assert sum(n or 0 for n in found["attemptsFailed"]["param_error"]) == 3
        assert 0 < max(n or 0 for n in found["dead"]) <= 3 and found["completed"][0] is None
        assert set(found["wait"]) == set(found["run"]) == {"p50", "p95", "p99"}
        rates = await get(client, "/api/rates")
        assert rates["kinds"]["SEND"]["failureRate"] == rates["queues"]["default"]["failureRate"] == 0.75
        assert len(rates["moments"]) == len(rates["kinds"]["SEND"]["completed"]) == 60
        wrong = await client.get("/api/history", params={"period": "2h"})
        assert (wrong.status_code, wrong.json()["code"]) == (422, "INPUT_INVALID")
        assert (await client.get("/api/history", params={"kind": "NO"})).status_code == 422


async def test_what_a_purge_gave_up_is_put_back_over_http(app: App) -> None:
    async with served(app) as client:
        tasks = await app.enqueue_many([{"kind": "SEND", "payload": {"to": "a"}, "delay": 3600}] * 3)
        begun = await post(client, "/api/operations", {"action": "purge", "jobKind": "SEND", "actor": "ann"}, 202)
        purge = begun["operation"]["id"]
        early = await client.post(f"/api/operations/{purge}/put-back")
        assert (early.status_code, early.json()["code"]) == (409, "TRANSITION_INVALID")
        await post(client, f"/api/approvals/{begun['approval']['id']}/approve", {"actor": "bob"})
        await work(app)
        assert {(await app.get(task.id)).state for task in tasks} == {"cancelled"}
        answer = await client.post(f"/api/operations/{purge}/put-back", json={"reason": "not these"})
        assert answer.status_code == 202
        assert (answer.json()["matched"], answer.json()["operation"]["reason"]) == (3, "not these")
        app.mended = True  # type: ignore[attr-defined]
        await work(app)
        assert {(await app.get(task.id)).state for task in tasks} == {"completed"}


async def test_failures_by_type_and_the_rules_for_them(app: App) -> None:
    app.registry.rules.table.append(
        FailureRule(words=["no such"], reason="unknown_address", failure_type="param_error", retry=False)
    )
    async with with_failures(app, 3) as (client, _):
        await (await app.store()).upkeep("series")
        found = await get(client, "/api/failure-types", period="1h", kind="SEND")
        assert (found["period"], found["stepSeconds"], len(found["moments"])) == ("1h", 60, 60)
        by_type = {one["type"]: one for one in found["types"]}
        assert list(by_type) == ["model_error", "param_error", "timeout", "network", "unknown"]
        assert (by_type["param_error"]["failed"], by_type["param_error"]["attempts"]) == (3, 3)
        assert sum(n or 0 for n in by_type["param_error"]["trend"]) == 3 and by_type["param_error"]["trend"][0] is None
        assert (by_type["timeout"]["failed"], by_type["timeout"]["attempts"]) == (0, 0)
        [rule] = found["rules"]
        assert (rule["words"], rule["reason"], rule["retry"]) == (["no such"], "unknown_address", False)
        assert (await client.get("/api/failure-types", params={"period": "2h"})).status_code == 422
        assert (await client.get("/api/failure-types", params={"kind": "NO"})).status_code == 422


async def test_many_names_come_in_pages(app: App) -> None:
    async with served(app) as client:
        await app.enqueue_many([{"kind": "SEND", "payload": {"to": "a"}, "queue": f"q{n:03}"} for n in range(5)])
        for what in ("queues", "kinds"):
            whole = [one["name"] for one in await get(client, f"/api/{what}")]
            address, found = f"/api/{what}?limit=2", list[str]()
            while address:
                page = await client.get(address)
                found += [one["name"] for one in page.json()]
                address = page.links.get("next", {}).get("url", "")
            assert found == whole and len(whole) > 2
