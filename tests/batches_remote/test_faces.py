"""Remote batches over HTTP and on the command line: the same service behind both."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from redrive import App
from redrive.api.app import make_api
from redrive.batches.remote.service import History
from redrive.testing.provider import simulated_provider
from tests.batches_remote.conftest import Scripted, made, rich, service, work
from tests.commands import redrive
from tests.console.conftest import console, done, page, text_of

LINES = {"content-type": "application/x-ndjson"}


def client_of(app: App) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=make_api(app, None, open_door=True))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


async def test_over_http(app: App, provider: Scripted) -> None:
    await rich(app, amount=10_000)
    async with client_of(app) as client:
        body = {"provider": "video", "account": "acme", "price": 5, "items": [{}, {"fail": "=1+1 timeout"}], "key": "k"}
        made = await client.post("/api/batches", json=body)
        assert (made.status_code, made.json()["state"], made.json()["total"]) == (201, "queued", 2)
        assert (await client.post("/api/batches", json=body)).json()["id"] == made.json()["id"]
        other = await client.post("/api/batches", json={**body, "price": 6})
        assert (other.status_code, other.json()["code"]) == (409, "BATCH_CONFLICT")
        await work(app, await _get(app, made.json()["id"]))
        at = f"/api/batches/{made.json()['id']}"
        found = (await client.get(at)).json()
        assert (found["state"], found["failed"], found["pending"]) == ("completed", 1, 0)
        assert (found["remote"]["captured"], found["remote"]["released"]) == (5, 5)
        failures = (await client.get(f"{at}/failures")).json()
        assert failures["byType"] == {"timeout": 1} and len(failures["trend"]["byType"]["timeout"]) == 30
        assert sum(failures["trend"]["byType"]["timeout"]) == 1 and failures["trend"]["stepSeconds"] > 0
        items = (await client.get(f"{at}/items", params={"state": "failed"})).json()["items"]
        assert [(one["n"], one["failureType"]) for one in items] == [(2, "timeout")]
        table = list(csv.DictReader(io.StringIO((await client.get(f"{at}/items?format=csv")).text)))
        assert (table[0]["state"], table[1]["error_message"]) == ("completed", "'=1+1 timeout")
        assert (await client.get(f"{at}/items?state=odd")).status_code == 422
        seen = (await client.post(f"{at}/retry-failed", json={"dryRun": True})).json()
        assert (seen["matched"], seen["charge"], seen["batch"]["remote"]["round"]) == (1, 5, 1)
        again = await client.post(f"{at}/retry-failed", json={"reason": "once more", "actor": "ann"})
        assert (again.status_code, again.json()["batch"]["remote"]["round"]) == (202, 2)
        assert (await client.post(f"{at}/retry-failed", json={"rate": 5})).status_code == 422
        gone = (await client.post(f"{at}/cancel", json={"reason": "no"})).json()
        assert (gone["batch"]["state"], gone["matched"], gone["operation"]) == ("cancelled", 1, None)
        assert [one["state"] for one in (await client.get("/api/batches")).json()["batches"]] == ["cancelled"]
        assert (await client.post("/api/batches", json={"items": [1]})).status_code == 422


async def test_lines_are_read_as_they_come(app: App, provider: Scripted) -> None:
    async with client_of(app) as client:
        many = "".join(
            f'{{"n": {n}, "text": "{"x" * 200}"}}\n' for n in range(3000)
        )  # more than a body may have elsewhere
        made = await client.post("/api/batches?provider=video", content=many, headers=LINES)
        assert (made.status_code, made.json()["total"]) == (201, 3000)
        for kind in ("application/jsonl", "application/ndjson; charset=utf-8"):
            marked = b"\xef\xbb\xbf" + f"[{kind!r}]".replace("'", '"').encode()
            one = await client.post("/api/batches?provider=video", content=marked, headers={"content-type": kind})
            assert (one.status_code, one.json()["total"]) == (201, 1)
        bad = many + "\n{oops\n"
        refused = await client.post("/api/batches?provider=video", content=bad, headers=LINES)
        assert (refused.status_code, refused.json()["code"]) == (422, "BATCH_ITEM_INVALID")
        assert "line 3002 is no JSON" in refused.text
        assert len((await client.get("/api/batches")).json()["batches"]) == 3


async def _get(app: App, batch: str) -> Any:
    from redrive.batches.remote.application import RemoteBatches

    return await app.of(RemoteBatches).get(batch)


def run(folder: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return redrive(*words, cwd=folder, given=given)


def test_on_the_command_line(tmp_path: Path) -> None:
    with simulated_provider("--duration", "0") as simulated:
        (tmp_path / "redrive.toml").write_text(
            f"batch_poll_first_seconds = 0\nproviders = '{json.dumps({'video': simulated.table})}'\n"
        )
        for words in (
            ["migrate", "--create"],
            ["ledger", "open", "acme"],
            ["ledger", "credit", "acme", "100", "--reason", "test"],
        ):
            assert run(tmp_path, *words).returncode == 0, words
        bad = run(tmp_path, "batch", "create", "-", "--provider", "video", given='{"a": 1}\n{"a"\n')
        assert bad.returncode == 2 and "line 2 is no JSON" in bad.stderr
        (tmp_path / "items.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
        options = ("--provider", "video", "--account", "acme", "--price", "7", "--json")
        created = json.loads(run(tmp_path, "batch", "create", "items.jsonl", *options).stdout)
        worked = run(tmp_path, "work", "--stop-when-empty")
        assert worked.returncode == 0, worked.stderr
        shown = run(tmp_path, "batch", "watch", created["id"])
        assert shown.returncode == 0 and "14 captured, 0 released, at 7 credits an item" in shown.stdout, shown
        items = run(tmp_path, "batch", "items", created["id"], "--csv")
        assert items.stdout.startswith('"n","state","task_id"') and items.stdout.count("completed") == 2
        assert created["id"] in run(tmp_path, "batch", "list").stdout
        assert run(tmp_path, "batch", "retry-failed", created["id"], "--yes").returncode == 1


async def test_in_the_console(app: App, provider: Scripted) -> None:
    batch = await made(app, [{}, {"fail": "<b>model</b>"}, {"polls": 1}], name="<i>May</i>")
    await work(app, batch)
    async with console(app) as client:
        found = await page(client, "/batches")
        assert "<i>May</i>" not in found and "&lt;i&gt;May" in found
        assert "May" in await page(client, "/batches?items=remote&provider=video&account=acme&state=completed")
        assert "No batch fits" in await page(client, "/batches?items=tasks")
        await page(client, "/batches?items=odd", 422)
        at = f"/batches/{batch.id}"
        found = text_of(await page(client, at))
        assert "3 of 3 have ended 100 %" in found and "0 frozen 20 captured 10 released" in found
        assert "model_error 1 model_error failures over the time of this round: 1" in found
        assert "10 credits are frozen, and what fails again is released. acme has 980 available" in found
        found = await page(client, f"{at}?state=failed&failureType=model_error")
        assert "PROVIDER_JOB_FAILED" in found and "<b>model</b>" not in found
        assert "Start 1 again" in found and f"batches-items:{batch.id}" not in found
        moved = text_of(await page(client, f"/ledger/acme?reference=batch:{batch.id}"))
        assert "settle +10 -30" in moved and "freeze -30 +30" in moved
        told = text_of(await done(client, "/act/batches.retry_failed", {"batch": str(batch.id), "reason": "again"}))
        assert "1 item is started again, as a new charge of 10 credits" in told and "10 frozen" in told
        told = text_of(await done(client, "/act/batches.cancel", {"batch": str(batch.id), "reason": "no"}))
        assert "Batch <i>May</i>: cancelled." in told


async def test_a_task_says_which_item_it_is(app: App, provider: Scripted) -> None:
    batch = await made(app, [{}, {"fail": "timeout"}], name="May")
    await work(app, batch)
    [failed] = await (await service(app)).items(batch.id, states=["failed"])
    async with console(app) as client:
        found = text_of(await page(client, f"/tasks/{failed.task_id}"))
        assert "Batch May completed Item 2 of 2 failed" in found and "10 credits, if it succeeds" in found
        await (await service(app)).retry_failed(batch.id, "again")
        found = text_of(await page(client, f"/tasks/{failed.task_id}"))
        assert "started again since, by another task" in found


async def test_the_pace_and_the_trend_of_a_round(app: App, provider: Scripted) -> None:
    batch = await made(app, [{}, {"fail": "timeout"}, {}, {"polls": 1000}])
    own = await service(app)
    assert await own.history(batch) is None
    batch = await work(app, batch)
    found = await own.history(batch)
    assert found is not None
    assert (sum(found.completed), {name: sum(one) for name, one in found.failed.items()}) == (2, {"timeout": 2})
    late = History(300.0, [0] * 25 + [2] * 5, {"timeout": [0] * 29 + [5]})
    assert (late.per_second, late.seconds_left(30)) == (0.3, pytest.approx(100))
    assert History(10.0, [1] * 30, {}).seconds_left(30) is None  # it is too early to say
