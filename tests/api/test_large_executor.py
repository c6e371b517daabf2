"""An outside executor ends tasks of any size that was let in."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive import App
from tests.api.conftest import served

pytestmark = pytest.mark.anyio
ENDS = {
    "completed": ({"result": {"n": 1}}, "completed"),
    "failed": ({"errorCode": "CARD_DECLINED", "errorMessage": "no money"}, "failed"),
    "cancelled": ({}, "cancelled"),
    "released": ({}, "queued"),
}


@pytest.mark.parametrize("size", [100, 70_000, 1_000_000])
@pytest.mark.parametrize("outcome", ENDS)
async def test_a_task_of_any_size_is_reported(tmp_path: Path, outcome: str, size: int) -> None:
    app = App(f"sqlite:///{tmp_path}/large.db")
    app.declare("REMOTE")
    more, state = ENDS[outcome]
    async with served(app) as client:
        task = await app.enqueue("REMOTE", {"text": "x" * size})
        [mine] = (await client.post("/api/tasks/claim", json={"workerId": "far", "leaseSeconds": 60})).json()
        body = {"leaseToken": mine["leaseToken"], "outcome": outcome, **more}
        answer = await client.post(f"/api/tasks/{task.id}/report", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["state"] == state
