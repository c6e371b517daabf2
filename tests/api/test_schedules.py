"""Schedules and doctor over HTTP."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from redrive import App, Context
from redrive.ops import access
from redrive.ops.access import Role
from redrive.settings import Options
from tests.api.conftest import served

pytestmark = pytest.mark.anyio


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path}/schedules.db")


async def test_schedules_are_listed_run_and_paused(app: App) -> None:

    @app.task("IMPORT")
    async def do_import(ctx: Context, source: str) -> None: ...

    app.periodic("IMPORT", cron="0 3 * * *", payload={"source": "s3cret"}, name="nightly")
    await app.worker(await app.store(), Options(stop_when_empty=True)).run()
    async with served(app) as client:
        [listed] = (await client.get("/api/schedules")).json()
        assert (listed["name"], listed["kind"], listed["cron"], listed["paused"]) == (
            "nightly",
            "IMPORT",
            "0 3 * * *",
            None,
        )
        assert listed["payload"] == {"source": "s3cret"}, "who may act sees it"
        ran = await client.post("/api/schedules/nightly/run", json={"reason": "now"}, headers={"X-Actor": "ann"})
        assert (ran.status_code, ran.json()["kind"], ran.json()["state"]) == (201, "IMPORT", "queued")
        paused = await client.post("/api/schedules/nightly/pause", json={"reason": "holiday"})
        assert paused.json() == {"target": "schedule", "name": "nightly", "paused": True, "changed": True}
        [listed] = (await client.get("/api/schedules")).json()
        assert listed["paused"]["reason"] == "holiday"
        told = (await client.get("/api/doctor")).json()
        [finding] = [one for one in told["findings"] if one["about"] == "schedule"]
        assert (finding["name"], finding["fix"]) == ("nightly", "redrive resume --schedule nightly")
        resumed = await client.post("/api/schedules/nightly/resume")
        assert resumed.json()["changed"] is True
        unknown = await client.post("/api/schedules/weekly/run")
        assert unknown.status_code == 404 and "nightly" in unknown.json()["hint"]


async def test_a_viewer_reads_what_doctor_says_without_words_of_tasks(app: App) -> None:

    @app.task("PAY", max_attempts=1)
    async def pay(ctx: Context) -> None:
        raise RuntimeError("the card of Ann Miller was declined")

    await app.enqueue("PAY")
    await app.worker(await app.store(), Options(stop_when_empty=True)).run()
    store = await app.store()
    viewer = await access.create(store, "eve", Role.VIEWER, actor="ann")
    other = await access.create(store, "ann", Role.OPERATOR, actor="ann")
    async with served(app) as client:

        async def told(secret: str, **params: str) -> httpx.Response:
            return await client.get("/api/doctor", params=params, headers={"Authorization": f"Bearer {secret}"})

        whole = (await told(other.secret)).json()
        assert whole["worst"] in ("warning", "critical") and "Ann Miller" in str(whole)
        masked = (await told(viewer.secret)).json()
        assert len(masked["findings"]) == len(whole["findings"]) and "Ann Miller" not in str(masked)
        assert (await told(viewer.secret, queue="nope")).json()["code"] == "QUEUE_UNKNOWN"
