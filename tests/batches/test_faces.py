"""Batches over HTTP, on the command line and in the console: the same service behind each."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from redrive.api.app import make_api
from redrive.batches.pages import sample
from redrive.kernel.audit import AuditFilter
from redrive.ops import access, audit
from redrive.ops.access import Caller, Role
from redrive.ops.audit_archive import _fits as fits
from tests.batches.conftest import drain
from tests.commands import redrive
from tests.console.conftest import HOME, console, done, page, text_of


async def failing(app: Any) -> Any:
    batch = await app.batch([("WORK", {"n": n}) for n in (1, 2, -1)], name="<b>May</b>", on_success=("SUCCEEDED", {}))
    await drain(app)
    return batch


async def test_what_its_items_wait_for(app: Any) -> None:
    batch = await app.batch([("WORK", {"n": 1}), ("SPLIT", {"n": 1})])
    async with console(app) as client:
        assert (await client.post("/api/kinds/SPLIT/pause", json={"actor": "ann"})).status_code == 200
        await drain(app)
        [told] = [
            one for one in (await client.get(f"/api/batches/{batch.id}")).json()["waitsFor"] if one["code"] == "paused"
        ]
        assert told["text"] == "kind SPLIT was paused by ann"
        assert told["text"] in text_of(await page(client, f"/batches/{batch.id}"))


async def test_a_list_without_batches_is_live_too(app: Any) -> None:
    async with console(app):
        regions = await sample(await app.operator(Caller("ann", Role.VIEWER)))
    assert "No batch yet" in regions["#batches"]


async def test_over_http(app: Any) -> None:
    batch = await failing(app)
    transport = httpx.ASGITransport(app=make_api(app, None, open_door=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        found = (await client.get(f"/api/batches/{batch.id}")).json()
        assert (found["state"], found["total"], found["failed"], found["pending"]) == ("failed", 3, 1, 0)
        assert [one["id"] for one in (await client.get("/api/batches?state=failed")).json()["batches"]] == [found["id"]]
        items = (await client.get(f"/api/batches/{batch.id}/items?state=failed&limit=1")).json()
        listed = (await client.get(f"/api/tasks?batchId={batch.id}&state=failed")).json()["tasks"]
        assert items["items"][0]["taskId"] == listed[0]["id"]
        assert listed[0]["belongsTo"] == {
            "feature": "batches",
            "label": f"batch {batch.id}",
            "page": f"/batches/{batch.id}",
        }
        failures = (await client.get(f"/api/batches/{batch.id}/failures")).json()
        assert sum(failures["byType"].values()) == 1 and failures["causes"][0]["failed"] == 1
        assert [sum(counts) for counts in failures["trend"]["byType"].values()] == [1]
        seen = await client.post(f"/api/batches/{batch.id}/retry-failed", json={"dryRun": True})
        assert (seen.status_code, seen.json()["matched"], seen.json()["operation"]) == (202, 1, None)
        begun = await client.post(f"/api/batches/{batch.id}/retry-failed", json={"reason": "x", "actor": "ann"})
        assert begun.json()["operation"]["action"] == "retry"
        assert (await client.post(f"/api/batches/{batch.id}/cancel")).status_code == 409
        made = await client.post("/api/batches", json={"tasks": [{"kind": "WORK", "payload": {"n": 1}}], "key": "k"})
        assert made.status_code == 201 and made.json()["total"] == 1
        other = await client.post("/api/batches", json={"tasks": [], "key": "k"})
        assert (other.status_code, other.json()["code"]) == (409, "BATCH_CONFLICT")
        gone = await client.post(f"/api/batches/{made.json()['id']}/cancel", json={"reason": "enough"})
        assert gone.json()["operation"]["total"] == 1
        unknown = await client.get("/api/batches/0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b/items")
        assert (unknown.status_code, unknown.json()["code"]) == (404, "BATCH_UNKNOWN")
        assert (await client.get("/api/tasks/dead-letters", params={"batchId": str(batch.id)})).status_code == 422


async def test_viewers_look_and_do_not_act(app: Any) -> None:
    batch = await failing(app)
    made = await access.create(await app.store(), "vic", Role.VIEWER, actor="ann")
    transport = httpx.ASGITransport(app=make_api(app, None))
    headers = {"authorization": f"Bearer {made.secret}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        assert (await client.get(f"/api/batches/{batch.id}")).status_code == 200
        for action in ("cancel", "retry-failed"):
            assert (await client.post(f"/api/batches/{batch.id}/{action}", json={})).status_code == 403
        assert (await client.post("/api/batches", json={"tasks": []})).status_code == 403


async def test_pages(app: Any) -> None:
    batch = await failing(app)
    waits = await app.batch([{"kind": "WORK", "payload": {"n": 1}, "delay": 60.0}], key="later")
    async with console(app) as client:
        listed = await page(client, "/batches")
        assert f'href="{HOME}/batches/{batch.id}"' in listed and "<b>May" not in listed and "later" in listed
        assert "later" not in text_of(await page(client, "/batches?state=failed"))
        one = await page(client, f"/batches/{batch.id}?state=failed")
        assert "3 of 3 have ended" in text_of(one) and "Retry 1 failed" in text_of(one) and 'class="shares"' in one
        task = re.search(r'href="/ops/queue(/tasks/[0-9a-f-]{36})"', one)
        assert task is not None
        assert f'href="{HOME}/batches/{batch.id}"' in await page(client, task[1]), "the task leads to its batch"
        assert "1" in text_of(await page(client, f"/failures/preview?batchId={batch.id}"))
        form = {"batch": str(waits.id), "reason": "enough"}
        said = await done(client, "/act/batches.cancel", form, f"/batches/{waits.id}")
        assert "Batch later: 1 item is being cancelled" in text_of(said)
        await page(client, "/batches/0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b", 404)
        await page(client, f"/batches/{waits.id}?stat=x", 422)


async def test_the_audit_log_of_a_batch(app: Any) -> None:
    """By its own id the rows about it, by that of an operation those of its tasks."""
    batch = await app.batch([{"kind": "WORK", "payload": {"n": 1}, "delay": 60.0}])
    await app.batch([("WORK", {"n": 2})])
    async with console(app) as client:

        async def actions(about: object) -> list[str]:
            found = await client.get("/api/tasks/audit-logs/export", params={"batchId": str(about)})
            return [row["action"] for row in found.json()]

        begun = (await client.post(f"/api/batches/{batch.id}/cancel", json={"reason": "enough"})).json()
        await drain(app)
        assert await actions(batch.id) == ["BATCH_CANCEL"]
        assert {"OPERATION_START", "TASK_CANCEL_BATCH_ITEM"} <= set(await actions(begun["operation"]["id"]))
        assert await actions("0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b") == []
    [row] = (await audit.query(await app.store(), AuditFilter(bulk_id=str(batch.id)))).rows
    assert row.reason == "enough"
    assert fits(row, AuditFilter(bulk_id=str(batch.id))) and not fits(row, AuditFilter(bulk_id="another"))


SHOP = """
from redrive import App
from redrive.batches import BATCHES
app = App(features=[BATCHES])

@app.task("SEND", max_attempts=1)
async def send(ctx, to: str) -> None:
    if to == "nobody":
        raise ValueError("nobody is there")
"""


ENVIRONMENT = {
    "REDRIVE_URL": "sqlite:///shop.db",
    "REDRIVE_APP": "shop:app",
    "PATH": "/usr/bin:/bin",
    "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
}


class Shell:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shop.py").write_text(SHOP)

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """Starts ``redrive`` with a pipe for all it says; a batch stands still for it after a moment, not 5 s."""
        code = "from redrive.batches import act_commands; act_commands.STILL_AFTER_S = 0.1; import redrive.cli.main"
        command = [sys.executable, "-c", f"{code} as cli; cli.main()", *map(str, arguments)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.folder, env=ENVIRONMENT, stdout=pipe, stderr=pipe, text=True)

    def __call__(self, *arguments: object, code: int = 0) -> Any:
        ran = redrive(*arguments, cwd=self.folder, env=ENVIRONMENT, code=code)
        return json.loads(ran.stdout) if "--json" in arguments and ran.stdout else ran.stdout + ran.stderr


def test_on_the_command_line(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    items = tmp_path / "items.jsonl"
    items.write_text('{"to": "ann"}\n\n{"to": 5}\n')
    assert f"line 3 of {items}" in shell("batch", "create", items, "--kind", "SEND", code=2)
    items.write_text('{"to": "ann"}\n{"to": "nobody"}\n')
    made = shell("batch", "create", items, "--kind", "SEND", "--name", "May", "--json")
    assert (made["total"], made["state"]) == (2, "processing")
    shell("work", "--stop-when-empty")
    assert "is failed: 1 completed, 1 failed" in shell("batch", "watch", made["id"], code=1)
    assert "1 failed by" in shell("batch", "show", made["id"])
    [failed] = shell("batch", "items", made["id"], "--state", "failed", "--json")["items"]
    assert failed["state"] == "failed" and failed["remote"] is None
    assert [one["id"] for one in shell("list", "--batch", made["id"], "--state", "failed", "--json")["items"]] == [
        failed["task_id"]
    ]
    assert f"batch {made['id']}" in shell("show", failed["task_id"])
    assert "would retry 1 item" in shell("batch", "retry-failed", made["id"], "--dry-run")
    assert "has begun" in shell("batch", "retry-failed", made["id"], "--yes")
    assert "May" in shell("batch", "list") and "is failed" in shell("batch", "cancel", made["id"], "--yes", code=1)


def test_watching_through_a_pipe_says_what_changes_and_why_nothing_does(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "items.jsonl").write_text('{"to": "ann"}\n{"to": "bob"}\n')
    made = shell("batch", "create", "items.jsonl", "--kind", "SEND", "--json")
    with shell.start("batch", "watch", made["id"]) as watch:
        assert watch.stdout is not None and watch.stderr is not None
        assert watch.stdout.readline() == "processing: 0 of 2 ended\n"
        warned = watch.stderr.readline()
        assert "nothing moves: no live worker serves queue default" in warned and "→ redrive work" in warned
        shell("work", "--stop-when-empty")
        out, err = watch.communicate(timeout=90)
    assert watch.returncode == 0 and "is completed: 2 completed" in out
    assert "no live worker" not in err, "it is said once"
