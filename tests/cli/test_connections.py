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


def test_a_route_that_fits_nothing_is_said(shop: Loaded, here: Path, start) -> None:
    (here / "redrive.toml").write_text(FILE.replace("REPORT_*", "RAPPORT_*"))
    worker = start("work", "--stop-when-empty")
    assert worker.log("settings.unknown")["message"] == "the route 'RAPPORT_*' fits no kind of this application"
    assert worker.ends() == 0
