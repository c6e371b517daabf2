"""Several connections on the command line: which one is served, and by which options."""

from __future__ import annotations

import asyncio
import signal
import socket
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from redrive.cli.commands.work import _command
from redrive.cli.support.loading import Loaded, load
from redrive.cli.support.worker_options import start_of
from redrive.errors import StoreUnavailable
from redrive.ops import connections
from tests.cli.conftest import Said

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
BROKEN = """
from redrive import App, Context
app = App()

@app.task("SEND", max_attempts=1)
async def send(ctx: Context) -> None:
    raise KeyError("no address")

@app.task("REPORT_X", max_attempts=1)
async def report(ctx: Context) -> None:
    raise ValueError("no figures")

app.periodic("SEND", cron="0 3 * * *", name="early")
app.periodic("REPORT_X", cron="0 4 * * *", name="nightly")
"""


@pytest.fixture
def shop(here: Path) -> Loaded:
    (here / "redrive.toml").write_text(FILE)
    (here / "shop.py").write_text(APP)
    return load(None, None)


@pytest.fixture
def broken(here: Path, redrive) -> Loaded:
    """Two connections: two tasks have failed on one, one on the other, and a worker has served each."""
    (here / "redrive.toml").write_text(FILE)
    (here / "shop.py").write_text(BROKEN)
    for kind in ("SEND", "SEND", "REPORT_X"):
        assert redrive("enqueue", kind).code == 0
    for name in ("main", "insights"):
        assert redrive("work", name, "--stop-when-empty", "--id", f"w-{name}").code == 0
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


def test_a_group_without_its_file(here: Path, redrive) -> None:
    said = redrive("work", "--group", "reports")
    told = f"groups are in redrive.toml, and there is none in {here}"
    assert said.code == 2 and told in said.err, "as in an image that lacks it"
    (here / "redrive.toml").write_text("redrive_port = 8322\n")
    assert "redrive.toml has no [workers.reports]" in redrive("work", "--group", "reports").err


def test_two_that_contradict_each_other(shop: Loaded, redrive) -> None:
    redrive("migrate")
    assert redrive("list", "--connection", "main", "--url", "sqlite:///main.db").code == 0
    said = redrive("work", "insights", "--connection", "main")
    assert said.code == 2 and "serves one connection, not insights and main" in said.err
    for command in (["list"], ["work"]):
        said = redrive(*command, "--connection", "insights", "--url", "sqlite:///x.db")
        assert said.code == 2 and "--url is the store of the default connection, main" in said.err
    said = redrive("enqueue", "REPORT_X", "--url", "sqlite:///main.db")
    assert said.code == 2 and "and the route of this kind says insights" in said.err and "--connection main" in said.err
    said = redrive("enqueue", "REPORT_X", "--url", "sqlite:///main.db", "--connection", "main")
    assert said.code == 0 and said.out.endswith("queue reports on main\n")
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
    assert "connection insights cannot be looked at: " in redrive("doctor").out
    assert redrive("enqueue", "REPORT_X").code == 3
    assert redrive("list", "--connection", "insights").code == 3
    lost = redrive("show", "0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b")
    assert lost.code == 3 and "insights cannot be asked" in lost.err


def test_migrate_brings_all_up_to_date(shop: Loaded, redrive) -> None:
    told = redrive("migrate", "--json").json
    assert {name: one["pending"] for name, one in told.items()} == {"main": [], "insights": []}
    assert redrive("migrate", "--status", "--connection", "insights", "--json").json["pending"] == []


def test_lists_are_about_all_connections(broken: Loaded, redrive) -> None:
    failed = redrive("failed", "--json").json
    assert failed["total"] == 3 and sorted(one["connection"] for one in failed["items"]) == ["insights", "main", "main"]
    assert [one["failed_at"] for one in failed["items"]] == sorted(
        (o["failed_at"] for o in failed["items"]), reverse=True
    )
    assert failed["next"] is None and len(redrive("failed", "--limit", 2, "--json").json["items"]) == 2
    said = redrive("failed")
    assert said.err == "" and "3 of 3" in said.out and "connection" in said.out
    stats = redrive("failed", "--stats", "--json").json
    assert (stats["total"], stats["by_kind"]) == (3, {"SEND": 2, "REPORT_X": 1})
    assert {name: one["total"] for name, one in stats["connections"].items()} == {"main": 2, "insights": 1}
    causes = redrive("causes", "--json").json["items"]
    assert {one["connection"]: one["failed"] for one in causes} == {"main": 2, "insights": 1}
    assert {one["connection"] for one in redrive("workers", "--json").json["items"]} == {"main", "insights"}
    assert {one["connection"] for one in redrive("schedules", "--json").json["items"]} == {"main", "insights"}
    for name, kind in (("main", "SEND"), ("insights", "REPORT_X")):
        assert redrive("retry", "--kind", kind, "--connection", name, "--yes", "--by", "ann").code == 0
    assert {one["connection"] for one in redrive("operations", "--json").json["items"]} == {"main", "insights"}
    assert {one["connection"] for one in redrive("audit", "--json").json["items"]} == {"main", "insights"}
    assert redrive("audit", "verify", "--json").json["connections"].keys() == {"main", "insights"}
    assert redrive("stats", "--history", "1h", "--json").json["connections"].keys() == {"main", "insights"}
    for command in ("failed", "causes", "workers", "schedules", "operations", "audit", "approvals", "limits", "slo"):
        for options in ([], ["--connection", "all"]):
            said = redrive(command, *options)
            assert (said.code, said.err) == (0, ""), command
        assert redrive(command, "--connection", "main", "--json").code == 0
    kinds = {one["kind"] for one in redrive("failed", "--connection", "insights", "--json").json["items"]}
    assert kinds <= {"REPORT_X"}
    place = redrive("failed", "--before", 5)
    assert place.code == 2 and "--before belongs to one connection" in place.err


def test_a_name_that_one_connection_knows_is_no_mistake(broken: Loaded, here: Path, redrive) -> None:
    (here / "redrive.toml").write_text(FILE.replace('redrive_app = "shop"', ""))
    assert redrive("failed", "--kind", "REPORT_X", "--json").json["total"] == 1
    assert redrive("list", "--queue", "reports", "--json").json["items"][0]["connection"] == "insights"
    assert redrive("failed", "--kind", "NOBODY").code == 2


def test_lists_go_on_without_one_that_is_away(broken: Loaded, here: Path, redrive) -> None:
    (here / "redrive.toml").write_text(FILE.replace("sqlite:///insights.db", "postgresql://x:pass@127.0.0.1:1/none"))
    for name in [one for one in sys.modules if one == "shop"]:
        del sys.modules[name]
    for command in ("failed", "causes", "workers", "schedules", "operations", "audit", "approvals", "limits", "slo"):
        said = redrive(command)
        assert said.code == 0 and "insights cannot be looked at" in said.err and "pass" not in said.err, command
        assert redrive(command, "--json").json["away"]["insights"]["code"] == "STORE_UNAVAILABLE"
    assert "2 of 2 (without insights)" in redrive("failed").out
    assert redrive("operations", "show", "nobody").code == 3


def test_what_is_named_is_found_where_it_is(broken: Loaded, redrive) -> None:
    causes = {one["connection"]: one["fingerprint"] for one in redrive("causes", "--json").json["items"]}
    assert redrive("causes", "show", causes["insights"], "--json").json["connection"] == "insights"
    assert redrive("causes", "note", causes["insights"], "known", "--json").json["note"] == "known"
    planned = redrive("causes", "retry", causes["insights"], "--dry-run", "--json").json["plan"]
    begun = redrive("retry", "--plan", planned, "--yes", "--by", "ann", "--json").json["operation"]
    assert redrive("operations", "show", begun["id"], "--json").json["total"] == 1
    assert redrive("operations", "cancel", begun["id"], "--json").json["status"] == "cancelled"
    worker = next(w for w in redrive("workers", "--json").json["items"] if w["connection"] == "insights")
    assert worker["id"] in redrive("workers", "drain", worker["id"]).out
    assert redrive("schedules", "run", "nightly", "--json").json["kind"] == "REPORT_X"
    assert "schedule nightly paused on insights" in redrive("pause", "--schedule", "nightly").out


def test_a_pause_happens_where_the_queue_is(broken: Loaded, redrive) -> None:
    assert redrive("pause", "--queue", "reports").out == "queue reports paused on insights\n"
    assert redrive("pause", "--kind", "REPORT_X", "--json").json["connection"] == "insights"
    assert redrive("limits", "REPORT_X", "--concurrency", 3, "--json").json["items"][0]["connection"] == "insights"
    assert [one["connection"] for one in redrive("limits", "--json").json["items"]] == ["insights"]
    redrive("enqueue", "SEND", "--connection", "insights")
    for_both = redrive("pause", "--kind", "SEND")
    assert for_both.code == 2 and "the kind SEND is on main and insights" in for_both.err
    assert redrive("pause", "--kind", "SEND", "--connection", "main").code == 0
    both = redrive("pause", "--kind", "SEND", "--connection", "all", "--json").json["connections"]
    assert {name: one["changed"] for name, one in both.items()} == {"main": False, "insights": True}
    nowhere = redrive("pause", "--queue", "nowhere", "--force")
    assert nowhere.code == 2 and "on none of the connections" in nowhere.err


def test_many_tasks_are_acted_on_where_somebody_says(broken: Loaded, redrive) -> None:
    answers = ["--fixed", "it", "--idempotent", "--yes", "--by", "ann"]
    for command in (
        ["retry", "--all", *answers],
        ["retry", "--kind", "SEND", "--yes"],
        ["forget", "--kind", "SEND", "--yes"],
        ["flush", *answers],
        ["purge", "--queue", "reports", "--yes"],
        ["replay", "--limit", 5],
        ["workers", "drain", "--all"],
        ["erase", "--scope", "ann", "--yes"],
        ["alerts", "silence", "failed", "--for", "1h"],
    ):
        said = redrive(*command)
        assert said.code == 2 and "--connection NAME says which, --connection all each" in said.err, command
    for command in (["audit", "prune", "--older-than-days", 1], ["audit", "export"]):
        assert redrive(*command, "--connection", "all").code == 2 and redrive(*command).code == 2
    assert redrive("operations", "--json").json["items"] == []
    seen = redrive("retry", "--all", "--dry-run", "--json").json["connections"]
    assert {name: one["matched"] for name, one in seen.items()} == {"main": 2, "insights": 1}
    done = redrive("retry", "--kind", "SEND", "--connection", "all", "--yes", "--by", "ann", "--json").json
    assert done["connections"]["main"]["operation"]["total"] == 2 and done["connections"]["insights"]["matched"] == 0
    said = redrive("retry", "--all", "--connection", "all", *answers)
    assert said.code == 0 and said.out.count("waits for a second operator") == 2
    assert "redrive approvals approve --connection insights" in said.out
    waiting = [one for one in redrive("approvals", "--json").json["items"] if one["connection"] == "insights"]
    assert redrive("approvals", "approve", waiting[0]["id"], "--by", "bob").code == 0


def test_each_in_turn_goes_on_without_one_that_is_away(broken: Loaded, here: Path, redrive) -> None:
    (here / "redrive.toml").write_text(FILE.replace("sqlite:///main.db", "postgresql://x:pass@127.0.0.1:1/none"))
    sys.modules.pop("shop", None)
    said = redrive("retry", "--kind", "REPORT_X", "--connection", "all", "--yes", "--by", "ann")
    assert said.code == 3 and "has begun" in said.out and "error:" in said.err
    assert redrive("pause", "--queue", "reports").code == 0
    assert redrive("pause", "--kind", "SEND").code == 3


def test_those_that_do_not_answer_are_waited_for_together(shop: Loaded, redrive, monkeypatch) -> None:
    monkeypatch.setattr(connections, "SIGN_OF_LIFE_S", 0.3)
    redrive("enqueue", "SEND")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silents = f"postgresql://x@127.0.0.1:{silent.getsockname()[1]}/none"
        Path("redrive.toml").write_text(
            FILE.replace("sqlite:///insights.db", silents) + f'[connections.third]\nurl = "{silents}2"\n'
        )
        sys.modules.pop("shop", None)
        for command in (["list"], ["stats"], ["doctor"], ["failed"], ["show", "0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b"]):
            said = redrive(*command)
            assert "no answer within 0.3 s" in said.out + said.err, command


def test_all_are_asked_at_the_same_time() -> None:
    all_asked = asyncio.Barrier(3)

    async def operator(_: str) -> Any:
        await all_asked.wait()
        raise StoreUnavailable("gone")

    found, away = asyncio.run(connections.on_each("abc", operator, lambda own: own.control.holds()))
    assert found == {} and {one.message for one in away.values()} == {"gone"}


def test_queries_of_a_queue_are_asked_where_its_tasks_go(broken: Loaded, here: Path, redrive) -> None:
    def answers(said: Said) -> set[tuple[str, str]]:
        return {(one["connection"], one["text"]) for one in said.json["findings"] if one["code"] == "own_query"}

    notes = (
        '[redrive_triage.reports.queries]\nfigures = "select 7"\n[redrive_triage.default.queries]\nmail = "select 5"\n'
    )
    Path("redrive.toml").write_text(FILE + notes)
    sys.modules.pop("shop", None)
    routed = {("insights", "queue reports, figures: 7"), ("main", "queue default, mail: 5")}
    assert answers(redrive("doctor", "--json")) == routed
    Path("redrive.toml").write_text(FILE + notes + '[redrive_triage.reports]\nconnection = "main"\n')
    sys.modules.pop("shop", None)
    named = {("main", "queue reports, figures: 7"), ("main", "queue default, mail: 5")}
    assert answers(redrive("doctor", "--json")) == named
    Path("redrive.toml").write_text(FILE + '[redrive_triage.reports]\nconnection = "mian"\n')
    sys.modules.pop("shop", None)
    said = redrive("doctor")
    assert said.code == 2 and "there is no connection 'mian'" in said.err


def test_one_store_under_two_names_is_noticed(here: Path, redrive) -> None:
    (here / "shop.py").write_text(APP)
    (here / "redrive.toml").write_text(FILE.replace("sqlite:///insights.db", f"sqlite:///{here}/main.db"))
    said = redrive("stats")
    assert said.code == 2 and "it is the same store as main" in said.err
    assert connections.same({"a": "1", "b": "2", "c": "1", "d": "1"}) == [("a", "c"), ("a", "d")]


def test_one_server_under_two_names_is_noticed(here: Path, redrive, postgres_url: str) -> None:
    """By what the store says of itself: no spelling gives it away."""
    (here / "shop.py").write_text(APP)
    once, again = postgres_url, postgres_url.replace("127.0.0.1", "localhost")
    (here / "redrive.toml").write_text(FILE.replace("sqlite:///main.db", once).replace("sqlite:///insights.db", again))
    found = [one for one in redrive("doctor", "--json").json["findings"] if one["code"] == "same_store"]
    assert [(one["connection"], one["level"]) for one in found] == [("insights", "warning")]
    assert "same store as main" in found[0]["text"]
