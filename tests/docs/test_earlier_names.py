"""Names kept from earlier systems: the page's SQL runs as written, its commands are there, and HTTP has both names."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from redrive import App
from redrive.cli.main import run
from redrive.cli.table import COMMANDS
from tests.console.conftest import console

pytestmark = pytest.mark.anyio
PAGE = (Path(__file__).parents[2] / "docs" / "earlier-names.md").read_text()
ON_POSTGRES, ON_SQLITE = (
    [one for one in block.split(";\n") if one.strip()] for block in re.findall(r"^```sql\n(.*?)^```", PAGE, re.M | re.S)
)


async def test_the_usual_sql_runs_as_written(postgres_url: str, tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/redrive.db")
    await app.migrate()
    await app.close()
    with psycopg.connect(postgres_url) as server, closing(sqlite3.connect(tmp_path / "redrive.db")) as file:
        columns = [
            ([one.name for one in server.execute(there.encode()).description or ()], _names(file.execute(here)))
            for there, here in zip(ON_POSTGRES, ON_SQLITE, strict=True)
        ]
    assert len(columns) == 8
    for there, here in columns[:4] + columns[5:7]:
        assert there == here, "both dialects answer the same question"


def _names(cursor: sqlite3.Cursor) -> list[str]:
    return [one[0] for one in cursor.description]


def test_every_command_that_it_names_is_there() -> None:
    laravel = PAGE.partition("## Laravel's queue commands")[2]
    named = [word for row in laravel.splitlines()[3:-1] for word in re.findall(r"`([a-z][a-z-]*)", row.split("|")[2])]
    known = {name for section in COMMANDS.values() for name in section}
    assert len(named) >= 15 and set(named) <= known | {"batch"}, set(named) - known


async def test_answers_carry_both_names_and_filters_take_earlier_states(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/redrive.db")
    both = {"scope": "episode-7", "kind": "VIDEO_GEN", "episodeId": "episode-7", "jobKind": "VIDEO_GEN"}
    async with console(app) as client:
        made = await client.post("/api/tasks", json={"jobKind": "VIDEO_GEN", "episodeId": "episode-7"})
        assert made.status_code == 201 and made.json().items() >= both.items()
        await app.worker(stop_when_empty=True).run()  # nobody handles it
        path = f"/api/tasks/{made.json()['id']}"
        story = (await client.get(path)).json()
        assert story["task"].items() >= both.items() and story["deadLetters"][0].items() >= both.items()
        [letter] = (await client.get("/api/tasks/dead-letters")).json()["deadLetters"]
        retried = (await client.post(f"{path}/retry", json={"reason": "again"})).json()
        assert letter.items() >= both.items() and retried.items() >= both.items()
        [row] = (await client.get("/api/tasks/audit-logs")).json()["items"]
        assert row.items() >= both.items()
        listed = (await client.get("/api/tasks", params={"state": "waiting"})).json()["tasks"]
        assert [one["state"] for one in listed] == ["queued"] and listed[0].items() >= both.items()
        [claimed] = (await client.post("/api/tasks/claim", json={"workerId": "w", "queues": ["default"]})).json()
        assert claimed.items() >= both.items()
        running = (await client.get("/api/tasks", params={"state": "executing"})).json()["tasks"]
        assert [one["id"] for one in running] == [made.json()["id"]]
        assert (await client.get("/api/tasks", params={"state": "sleeping"})).status_code == 422
        ops = (await client.get("/api/tasks/ops")).json()
        assert ops["recentDeadLetters"][0].items() >= both.items() and ops["recentAuditLogs"][0].items() >= both.items()
        page = await client.get("/ops/queue/tasks", params={"state": "executing"})
        assert page.status_code == 200 and made.json()["id"] in page.text
        report = {"leaseToken": claimed["leaseToken"], "outcome": "completed"}
        assert (await client.post(f"{path}/report", json=report)).json().items() >= both.items()


def test_the_command_line_takes_them_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/redrive.db"
    assert run(["migrate", "--url", url]) == 0 and run(["enqueue", "VIDEO_GEN", "--url", url]) == 0
    capsys.readouterr()
    assert run(["list", "--state", "waiting,executing", "--url", url]) == 0
    assert "VIDEO_GEN" in capsys.readouterr().out
