"""Failed events are replayed: by the service, the command and HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from redrive import State
from redrive.api.app import make_api
from redrive.errors import ApprovalNeeded, InvalidInput, NotAllowed
from redrive.ops.access import Caller, Role
from redrive.outbox.service import OutboxService
from redrive.outbox.verdict import Failed
from tests.outbox.conftest import BOTH_STORES, World

pytestmark = pytest.mark.anyio
REFUSED = Failed("http_4xx", "no such field")


async def failed_world(world: World, number: int) -> None:
    for n in range(number):
        await world.publish(n, "upsert", 1, {"n": n})
    world.sink.faults = [lambda events: dict.fromkeys(range(len(events)), REFUSED)]
    await world.drain()
    assert {task.state for task in await world.tasks()} == {State.FAILED}


async def service(world: World, role: Role = Role.OPERATOR) -> OutboxService:
    return (await world.app.operator(Caller("ann", role))).of(OutboxService)


@BOTH_STORES
async def test_replayed_events_begin_anew(world: World) -> None:
    await failed_world(world, 3)
    own = await service(world)
    plan = await own.plan_replay(["notes"], 2)
    assert (plan.number, plan.approval, (await own.foresee(plan)).matched) == (2, None, 2)
    assert {task.state for task in await world.tasks()} == {State.FAILED}, "a plan changes nothing"

    done = await own.replay_plan(plan, "the mapping is mended")
    assert (done.matched, done.done, done.left) == (2, 2, 0)
    pending = [task for task in await world.tasks() if task.state is State.QUEUED]
    told = [(one.attempt_count, one.error_code, one.replay_count, one.last_replayed_by) for one in pending]
    assert told == [(0, None, 1, "ann")] * 2
    assert {one.last_replayed_reason for one in pending} == {"the mapping is mended"}
    assert all(one.last_replayed_at is not None for one in pending)
    rows = await (await world.app.operator(Caller("ann", Role.ADMIN))).audit.query()
    assert [row.action for row in rows.rows].count("TASK_RETRY_BATCH_ITEM") == 2

    await world.drain()
    assert len(await world.versions()) == 2


async def test_all_projections_are_meant_where_none_is_named(world: World) -> None:
    await failed_world(world, 2)
    world.app.outbox.projection("others", sink=world.fts)
    plan = await (await service(world)).plan_replay()
    assert {name: one.number for name, one in plan.selections.items()} == {"notes": 2, "others": 0}


async def test_refusals(world: World) -> None:
    await failed_world(world, 3)
    with pytest.raises(NotAllowed):
        await (await service(world, Role.VIEWER)).plan_replay(["notes"])
    own = await service(world)
    with pytest.raises(InvalidInput, match="no projection 'note'") as refused:
        await own.plan_replay(["note"])
    assert "did you mean notes?" in str(refused.value.hint)
    with pytest.raises(InvalidInput, match="limit"):
        await own.plan_replay(["notes"], 0)


async def test_many_need_a_second_operator(world: World) -> None:
    await failed_world(world, 3)
    world.app.settings = world.app.settings.with_values(approvals_above=2)
    own = await service(world)
    plan = await own.plan_replay(["notes"])
    assert plan.approval is not None
    with pytest.raises(ApprovalNeeded):
        await own.replay_plan(plan)
    assert {task.state for task in await world.tasks()} == {State.FAILED}, "all of it, or nothing"


async def test_over_http(world: World) -> None:
    await failed_world(world, 2)
    api = make_api(world.app, None, open_door=True)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=api), base_url="http://localhost") as client:
        body = {"dryRun": True, "limit": 1}
        answer = await client.post("/api/outbox/notes/replay", json=body)
        assert (answer.status_code, answer.json()["matched"], answer.json()["dryRun"]) == (200, 1, True)
        answer = await client.post("/api/outbox/notes/replay", json={"reason": "mended"})
        assert (answer.status_code, answer.json()["retried"]) == (200, 2), answer.text
        assert (await client.post("/api/outbox/nothing/replay", json={})).status_code == 422
    assert {task.state for task in await world.tasks()} == {State.QUEUED}


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from redrive.cli.root import call

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRIVE_LOG", "off")
    for setting in ("TASK_WORKER_LEASE_MS", "TASK_WORKER_RECOVERY_INTERVAL_MS"):
        monkeypatch.setenv(setting, "30000")  # outbox work says them in the environment: nothing of that stays
    name = "search_index_to_elastic"
    assert call(["migrate", "--create"]) == 0
    for n in range(4):
        event = {"entity_type": "note", "entity_id": str(n), "op": "nonsense", "version": 1, "payload": {}}
        assert call(["enqueue", f"OUTBOX:{name}", json.dumps(event), "--queue", f"outbox:{name}"]) == 0
    assert call(["outbox", "work", "--stop-when-empty", "--metrics-port", "0"]) == 0

    def run(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = call(["outbox", "replay", *arguments])
        return code, capsys.readouterr().out

    def failed() -> Any:
        capsys.readouterr()
        assert call(["outbox", "--json"]) == 0
        return json.loads(capsys.readouterr().out)["items"][0]["failed"]

    capsys.readouterr()
    assert call(["failed", "--json"]) == 0
    assert call(["forget", json.loads(capsys.readouterr().out)["items"][0]["id"], "--by", "ann"]) == 0
    assert run("--forgotten", "--dry-run") == (0, f"4 events of {name} would be replayed\n")
    assert run("--dry-run") == (0, f"3 events of {name} would be replayed\n")
    assert failed() == 3
    with pytest.raises(InvalidInput, match="nobody is there to ask"):
        run(name)
    code, said = run(name, "--limit", "1", "--by", "ann", "--reason", "x")
    assert code == 0 and said.startswith(f"1 event of {name} replayed\nwhat becomes of them: redrive operations show ")
    assert failed() == 2
    code, out = run("--yes", "--json")
    assert (code, json.loads(out)["retried"]) == (0, 2)
    assert run() == (0, f"nothing to replay of {name}\n")
