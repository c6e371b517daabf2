"""Remote batches over HTTP and on the command line: the same service behind both."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from redrive import App
from redrive.api.app import make_api
from redrive.testing.provider import simulated_provider
from tests.batches_remote.conftest import Scripted, made, rich, work
from tests.console.conftest import console, done, page, text_of

pytestmark = pytest.mark.anyio
LINES = {"content-type": "application/x-ndjson"}


def client_of(app: App) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=make_api(app, None, open_door=True))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


async def test_over_http(app: App, provider: Scripted) -> None:
    await rich(app, amount=10_000)
    async with client_of(app) as client:
        body = {"provider": "video", "account": "acme", "price": 5, "items": [{}, {"fail": "=1+1 timeout"}], "key": "k"}
        made = await client.post("/api/batches/remote", json=body)
        assert (made.status_code, made.json()["state"], made.json()["items"]) == (201, "queued", 2)
        assert (await client.post("/api/batches/remote", json=body)).json()["id"] == made.json()["id"]
        other = await client.post("/api/batches/remote", json={**body, "price": 6})
        assert (other.status_code, other.json()["code"]) == (409, "BATCH_CONFLICT")
        await work(app, await _get(app, made.json()["id"]))
        at = f"/api/batches/remote/{made.json()['id']}"
        found = (await client.get(at)).json()
        assert (found["state"], found["captured"], found["released"]) == ("completed", 5, 5)
        assert found["counts"]["failed"] == 1 and found["failures"]["byType"] == {"timeout": 1}
        items = (await client.get(f"{at}/items", params={"state": "failed"})).json()["items"]
        assert [(one["n"], one["failureType"]) for one in items] == [(2, "timeout")]
        table = list(csv.DictReader(io.StringIO((await client.get(f"{at}/items?format=csv")).text)))
        assert (table[0]["state"], table[1]["error_message"]) == ("completed", "'=1+1 timeout")
        assert (await client.get(f"{at}/items?state=odd")).status_code == 422
        again = await client.post(f"{at}/retry-failed", json={"reason": "once more", "actor": "ann"})
        assert (again.status_code, again.json()["round"]) == (200, 2)
        gone = await client.post(f"{at}/cancel", json={"reason": "no"})
        assert gone.json()["state"] == "cancelled"
        assert [one["state"] for one in (await client.get("/api/batches/remote")).json()["batches"]] == ["cancelled"]
        assert (await client.post("/api/batches/remote", json={"items": [1]})).status_code == 422


async def test_lines_are_read_as_they_come(app: App, provider: Scripted) -> None:
    await rich(app)
    async with client_of(app) as client:
        many = "".join(
            f'{{"n": {n}, "text": "{"x" * 200}"}}\n' for n in range(3000)
        )  # more than a body may have elsewhere
        made = await client.post("/api/batches/remote?provider=video", content=many, headers=LINES)
        assert (made.status_code, made.json()["items"]) == (201, 3000)
        bad = many + "\n{oops\n"
        refused = await client.post("/api/batches/remote?provider=video", content=bad, headers=LINES)
        assert (refused.status_code, refused.json()["code"]) == (422, "BATCH_ITEM_INVALID")
        assert "line 3002 is no JSON" in refused.text
        assert len((await client.get("/api/batches/remote")).json()["batches"]) == 1


async def _get(app: App, batch: str) -> Any:
    from redrive.batches.remote.application import RemoteBatches

    return await app.of(RemoteBatches).get(batch)


def run(folder: Path, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "redrive.cli", *words]
    return subprocess.run(command, cwd=folder, input=given, capture_output=True, text=True, timeout=60)


def test_on_the_command_line(tmp_path: Path) -> None:
    with simulated_provider("--duration", "0") as simulated:
        (tmp_path / "redrive.toml").write_text(
            f"batch_poll_first_seconds = 0\nproviders = '{json.dumps({'video': simulated.table})}'\n"
        )
        for words in (["migrate"], ["ledger", "open", "acme"], ["ledger", "credit", "acme", "100", "--reason", "test"]):
            assert run(tmp_path, *words).returncode == 0, words
        remote = ("batch", "remote")
        bad = run(tmp_path, *remote, "create", "-", "--provider", "video", given='{"a": 1}\n{"a"\n')
        assert bad.returncode == 2 and "line 2 is no JSON" in bad.stderr
        (tmp_path / "items.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
        options = ("--provider", "video", "--account", "acme", "--price", "7", "--json")
        created = json.loads(run(tmp_path, *remote, "create", "items.jsonl", *options).stdout)
        worked = run(tmp_path, "work", "--stop-when-empty")
        assert worked.returncode == 0, worked.stderr
        shown = run(tmp_path, *remote, "watch", created["id"])
        assert shown.returncode == 0 and "14 captured" in shown.stdout, shown
        items = run(tmp_path, *remote, "items", created["id"], "--csv")
        assert items.stdout.startswith("n,state,payload") and items.stdout.count("completed") == 2
        assert created["id"] in run(tmp_path, *remote, "list").stdout
        assert run(tmp_path, *remote, "retry-failed", created["id"], "--yes").returncode == 1


async def test_in_the_console(app: App, provider: Scripted) -> None:
    await rich(app)
    batch = await made(app, [{}, {"fail": "<b>model</b>"}, {"polls": 1}], name="<i>May</i>")
    await work(app, batch)
    async with console(app) as client:
        found = await page(client, "/batches/remote")
        assert "<i>May</i>" not in found and "&lt;i&gt;May" in found
        found = text_of(await page(client, f"/batches/remote/{batch.id}"))
        assert "3 of 3 have ended" in found and "Captured 20" in found and "1 model_error" in found
        found = await page(client, f"/batches/remote/{batch.id}?state=failed&failureType=model_error")
        assert "PROVIDER_JOB_FAILED" in found and "<b>model</b>" not in found
        assert "Start 1 again" in found
        told = await done(client, f"/batches/remote/{batch.id}", {"do": "retry_failed", "reason": "again"})
        assert "1 items are started again" in told
        told = await done(client, f"/batches/remote/{batch.id}", {"do": "cancel", "reason": "no"})
        assert "It is cancelled" in told
