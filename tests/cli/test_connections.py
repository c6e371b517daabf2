"""Several connections on the command line: which one is served, and by which options."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path

import pytest

from redrive.cli.commands.work import _command
from redrive.cli.support.loading import Loaded, load
from redrive.cli.support.worker_start import start_of

FILE = """
redrive_app = "shop"
[connections.main]
url = "sqlite:///main.db"
[connections.insights]
url = "sqlite:///insights.db"
[routes]
"REPORT_*" = {connection = "insights", queue = "reports"}
[workers.reports]
connection = "insights"
queues = ["reports"]
processes = 3
concurrency = 4
tries = 2
max_time = 60
"""
APP = """
from redrive import App, Context
app = App()

@app.task("SEND")
async def send(ctx: Context) -> None: ...

@app.task("REPORT_X")
async def report(ctx: Context) -> str:
    return ctx.connection
"""


@pytest.fixture
def shop(here: Path) -> Loaded:
    (here / "redrive.toml").write_text(FILE)
    (here / "shop.py").write_text(APP)
    return load(None, None)


def states(path: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    connection = sqlite3.connect(path)
    for table in ("redrive_task", "redrive_history"):
        found += connection.execute(f"select kind, state from {table}").fetchall()
    connection.close()
    return sorted(found)


def test_a_worker_serves_one_connection(shop: Loaded, redrive, start) -> None:
    for kind in ("SEND", "REPORT_X"):
        redrive("enqueue", kind)
    assert states("main.db") == [("SEND", "queued")] and states("insights.db") == [("REPORT_X", "queued")]
    done = redrive("work", "insights", "--stop-when-empty", "--json")
    assert done.json["completed"] == 1, done.err
    assert states("main.db") == [("SEND", "queued")] and states("insights.db") == [("REPORT_X", "completed")]
    worker = start("work", "--stop-when-empty")
    said = worker.log("worker.connection")
    assert said["message"] == "serving the connection main, the default one; not here: insights"
    assert worker.ends() == 0 and states("main.db") == [("SEND", "completed")]


def test_a_group_has_its_options_and_the_command_line_wins(shop: Loaded) -> None:
    job = start_of(shop.app, {}, None, "reports", None)
    assert (job.connection, job.processes) == ("insights", 3)
    assert (job.options.queues, job.options.concurrency, job.options.tries) == (("reports",), 4, 2)
    other = start_of(shop.app, {"queues": ["a,b"], "tries": 5}, "main", "reports", 1)
    assert (other.connection, other.processes, other.options.tries) == ("main", 1, 5)
    assert (other.options.queues, other.options.concurrency) == (("a", "b"), 4)
    command = _command(shop, job, "w-1")
    assert command[command.index("--connection") + 1] == "insights" and "--group" not in command


def test_a_group_runs_with_its_processes(shop: Loaded, redrive, start) -> None:
    redrive("enqueue", "REPORT_X")
    fleet = start("work", "--group", "reports", "--processes", 2, "--id", "w", "--stop-when-empty")
    assert fleet.log("task.completed")["queue"] == "reports"
    fleet.process.send_signal(signal.SIGTERM)
    assert fleet.ends() == 0
    assert states("insights.db") == [("REPORT_X", "completed")]


def test_names_that_there_are_not(shop: Loaded, redrive) -> None:
    said = redrive("work", "--group", "report")
    assert said.code == 2 and "no group of workers named 'report' (did you mean reports?)" in said.err
    said = redrive("work", "insight")
    assert said.code == 2 and "there is no connection 'insight'" in said.err and "did you mean insights?" in said.err


def test_two_that_contradict_each_other(shop: Loaded, redrive) -> None:
    redrive("migrate")
    assert redrive("list", "--connection", "main", "--url", "sqlite:///main.db").code == 0
    said = redrive("work", "insights", "--connection", "main")
    assert said.code == 2 and "serves one connection, not insights and main" in said.err
    for command in (["list"], ["work"]):
        said = redrive(*command, "--connection", "insights", "--url", "sqlite:///x.db")
        assert said.code == 2 and "--url is the store of the default connection, main" in said.err
    shown = {one["name"]: one["value"] for one in redrive("settings", "--json").json["items"]}
    assert shown["REDRIVE_ROUTES"] == "{'REPORT_*': {'connection': 'insights', 'queue': 'reports'}}"


def test_a_route_that_fits_nothing_is_said(shop: Loaded, here: Path, start) -> None:
    (here / "redrive.toml").write_text(FILE.replace("REPORT_*", "RAPPORT_*"))
    worker = start("work", "--stop-when-empty")
    assert worker.log("settings.unknown")["message"] == "the route 'RAPPORT_*' fits no kind of this application"
    assert worker.ends() == 0


def test_commands_look_at_all_and_find_tasks_wherever_they_are(shop: Loaded, here: Path, redrive) -> None:
    sent = redrive("enqueue", "SEND", "--json").json
    report = redrive("enqueue", "REPORT_X", "--json").json
    assert (sent["connection"], report["connection"]) == ("main", "insights")
    assert redrive("enqueue", "SEND", "--connection", "insights").out.endswith("queue default on insights\n")
    listed = redrive("list", "--json").json["items"]
    assert [one["connection"] for one in listed] == ["insights", "insights", "main"]
    page = redrive("list", "--json", "--limit", 2).json
    rest = redrive("list", "--json", "--before", page["next"]).json["items"]
    assert [one["id"] for one in rest] == [sent["id"]]
    assert len(redrive("list", "--connection", "main", "--json").json["items"]) == 1
    assert "queue reports on insights" in redrive("show", report["id"]).out
    assert redrive("show", report["id"][:18], "--json").json["task"]["connection"] == "insights"
    assert redrive("why", report["id"]).code == 0
    assert redrive("cancel", report["id"]).code == 0
    split = redrive("retry", sent["id"], report["id"])
    assert split.code == 2 and f"{sent['id']} on main; {report['id']} on insights" in split.err
    assert redrive("retry", report["id"]).code == 0
    lost = redrive("show", "0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b")
    assert lost.code == 1 and "another store" not in lost.err
    stats = redrive("stats", "--json").json
    assert stats["totals"]["queued"] == 3
    assert {name: one["totals"]["queued"] for name, one in stats["connections"].items()} == {"main": 1, "insights": 2}
    assert redrive("stats", "--connection", "insights", "--json").json["totals"]["queued"] == 2
    assert redrive("stats").out.endswith("all connections: 3 queued\n")


def test_one_that_is_away_is_marked_and_the_others_answer(here: Path, redrive) -> None:
    away = "postgresql://nobody:pass@127.0.0.1:1/none"
    (here / "redrive.toml").write_text(FILE.replace("sqlite:///insights.db", away))
    (here / "shop.py").write_text(APP)
    redrive("enqueue", "SEND")
    said = redrive("stats")
    assert said.code == 0 and "(without insights)" in said.out and "pass" not in said.out
    assert redrive("stats", "--json").json["connections"]["insights"]["error"]["code"] == "STORE_UNAVAILABLE"
    listed = redrive("list")
    assert listed.code == 0 and "SEND" in listed.out and "insights cannot be looked at" in listed.err
    assert redrive("list", "--json").json["away"]["insights"]["code"] == "STORE_UNAVAILABLE"
    checked = redrive("doctor", "--json")
    found = {(one["connection"], one["code"]) for one in checked.json["findings"]}
    assert checked.code == 1 and ("insights", "CONNECTION_AWAY") in found and any(name == "main" for name, _ in found)
    assert redrive("enqueue", "REPORT_X").code == 3
    assert redrive("list", "--connection", "insights").code == 3
    lost = redrive("show", "0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b")
    assert lost.code == 3 and "insights cannot be asked" in lost.err


def test_migrate_brings_all_up_to_date(shop: Loaded, redrive) -> None:
    told = redrive("migrate", "--json").json
    assert {name: one["pending"] for name, one in told.items()} == {"main": [], "insights": []}
    assert redrive("migrate", "--status", "--connection", "insights", "--json").json["pending"] == []


def test_a_command_about_one_of_several_says_which(shop: Loaded, redrive) -> None:
    for name in ("main", "insights"):
        assert redrive("migrate", "--connection", name).code == 0
    said = redrive("failed")
    assert "about the connection main; others: insights (--connection NAME)" in said.err
    assert "others:" not in redrive("failed", "--connection", "insights").err
    assert "others:" not in redrive("stats").err, "that is about all of them"
    assert redrive("failed", "--json").err == ""
