"""The runbook: what an operator types, on a file and against real processes."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

APP = "redrive_kit.examples.shots:app"


def make_failures(redrive, count: int, kind: str = "VIDEO_GEN") -> list[str]:
    said = [redrive("enqueue", "--app", APP, kind, "--scope", "e1", "--json") for _ in range(count)]
    assert not any(one.code for one in said), said[0].err
    ids = [one.json["id"] for one in said]
    redrive("work", "--app", APP, "--stop-when-empty", "--concurrency", 10)
    return ids


def go_on(redrive) -> None:
    """Workers carry operations out; one that ends when there is nothing to do does so as well."""
    redrive("work", "--app", APP, "--stop-when-empty", "--queue", "elsewhere")


def test_failed_causes_and_statistics(redrive) -> None:
    assert redrive("migrate").code == 0
    assert "nothing is failed" in redrive("failed").out
    assert "nothing is failed" in redrive("causes").out
    ids = make_failures(redrive, 3)
    listed = redrive("failed", "--kind", "VIDEO_GEN", "--json").json
    assert listed["total"] == 3 and sorted(task["id"] for task in listed["items"]) == sorted(ids)
    assert "3 of 3 (kind VIDEO_GEN)" in redrive("failed", "--kind", "VIDEO_GEN").out
    assert redrive("failed", "--stats", "--json").json["by_kind"] == {"VIDEO_GEN": 3}
    same = redrive("failed", "--stats", "--kind", "VIDEO_GEN", "--json").json
    assert same == redrive("failed", "--stats", "--json").json
    assert redrive("failed", "--stats", "--error-code", "NO_SUCH_CODE", "--json").json["total"] == 0
    by_scope = redrive("failed", "--stats", "--scope", "e1")
    assert by_scope.code == 2 and "totals are not kept by scope" in by_scope.err
    [cause] = redrive("causes", "--json").json["items"]
    name = cause["fingerprint"]
    assert redrive("causes", "note", name, "the farm is down", "--owner", "bob").code == 0
    assert redrive("causes", "mute", name, "8h").code == 0
    shown = redrive("causes", "show", name).out
    assert "the farm is down" in shown and "owner: bob" in shown and "muted until" in shown
    assert redrive("causes", "mute", name, "soon").code == 2
    assert redrive("causes", "show", name[:6], "--json").json["fingerprint"] == name
    assert redrive("causes", "show", name[:3]).code == 2, "too short to mean one"
    for command in (["failed"], ["list"], ["retry", "--dry-run"], ["replay", "--dry-run"]):
        assert (
            name in redrive(*command, "--fingerprint", name[:6], "--json").out
            or "3" in redrive(*command, "--fingerprint", name[:6]).out
        ), command
    assert redrive("causes", "resolve", name, "--json").json["status"] == "resolved"
    assert redrive("causes", "--status", "open", "--json").json["items"] == []
    assert redrive("causes", "show", "nonsense").code == 1


def test_the_former_name_of_causes_works_and_is_not_listed(redrive) -> None:
    assert redrive("migrate").code == 0
    assert redrive("groups", "--json").json["items"] == []
    assert redrive("stats", "--groups", "3").code == 0
    told = redrive("--help").out
    assert " causes " in told and " groups " not in told


def test_retry_in_every_way(redrive) -> None:
    ids = make_failures(redrive, 4)
    assert redrive("retry").code == 2
    assert redrive("retry", ids[0], "--all").code == 2
    dry = redrive("retry", ids[0], "--dry-run", "--json").json
    assert dry == {"would": [ids[0]], "skipped": {}, "dry_run": True, "needs_approval": None}
    assert redrive("retry", ids[0], "--by", "ann").code == 0
    asked = redrive("retry", "--kind", "VIDEO_GEN")
    assert asked.code == 2 and "--yes" in asked.err, "nobody is there to ask"
    for useless in (["--rate", 5], ["--canary", 1], ["--wait"], ["--stop-on-return"]):
        assert redrive("retry", ids[0], *useless).code == 2
    assert redrive("retry", "--scope", "e1", "--percent", 50).code == 2
    assert redrive("retry", "--scope", "e1", "--rate", 0).code == 2
    assert "known kinds: " in redrive("retry", "--kind", "VIDEO_GUN", "--dry-run").err
    assert "known kinds: " in redrive("failed", "--kind", "VIDEO_GUN").err
    assert "one of: model_error" in redrive("failed", "--failure-type", "odd").err
    assert "would retry 3 tasks (scope e1); nothing was done" in redrive("retry", "--scope", "e1", "--dry-run").out
    begun = redrive("retry", "--scope", "e1", "--yes", "--by", "ann", "--reason", "r", "--json").json
    assert begun["operation"]["total"] == 3 and begun["approval"] is None
    go_on(redrive)
    done = redrive("operations", "show", begun["operation"]["id"], "--json").json
    assert (done["status"], done["done"]) == ("completed", 3)
    assert (done["failed_again"], done["tasks"]["waiting"]) == (0, 3), "that they are queued again is not the end"
    assert "nothing is failed" in redrive("failed").out
    assert redrive("operations", "show", "nonsense").code == 1
    assert redrive("retry", ids[0], ids[1], "--by", "ann").code == 1, "they wait already"
    skipped = redrive("audit", "--action", "TASK_RETRY_BATCH_SKIPPED", "--json").json["items"]
    assert {row["task_id"] for row in skipped} == set(ids[:2])
    redrive("work", "--app", APP, "--stop-when-empty")
    watched = redrive("operations", "watch", begun["operation"]["id"])
    assert watched.code == 1 and "3 retried: 3 failed again" in watched.out, "nobody had mended anything"
    assert "3 retried: 3 failed again" in redrive("operations", "show", begun["operation"]["id"]).out


def test_replay(redrive) -> None:
    make_failures(redrive, 3)
    assert "2 tasks would be replayed" in redrive("replay", "--limit", 2, "--dry-run").out
    unasked = redrive("replay", "--by", "ann", "--reason", "mended")
    assert unasked.code == 2 and "nobody is there to ask" in unasked.err
    done = redrive("replay", "--limit", 2, "--by", "ann", "--reason", "mended", "--json").json
    assert (done["matched"], done["retried"], done["skipped"]) == (2, 2, 0)
    assert redrive("failed", "--json").json["total"] == 1
    tasks = redrive("list", "--state", "queued", "--kind", "VIDEO_GEN", "--json").json["items"]
    assert {(t["replay_count"], t["last_replayed_by"], t["last_replayed_reason"]) for t in tasks} == {
        (1, "ann", "mended")
    }


def test_forget_flush_and_a_second_person(redrive) -> None:
    ids = make_failures(redrive, 3)
    assert redrive("forget", ids[0], "--by", "ann").code == 0
    again = redrive("forget", ids[0])
    assert again.code == 1 and "cancelled" in again.err
    silent = redrive("flush", "--yes", "--by", "ann", "--reason", "old", "--json")
    assert silent.code == 2 and "must be answered" in silent.error["message"]
    answers = ["--fixed", "the old bucket is gone", "--not-idempotent"]
    asked = redrive("flush", "--yes", "--by", "ann", "--reason", "old", *answers, "--json").json
    approval = asked["approval"]["id"]
    assert asked["operation"]["status"] == "waiting"
    pending = redrive("approvals", "--pending").out
    assert "all failures are given up" in pending
    assert "fixed: the old bucket is gone; handlers are not idempotent" in pending
    assert "waits for approval" in redrive("show", ids[1]).out
    own = redrive("approvals", "approve", approval, "--by", "ann", "--json")
    assert (own.code, own.error["code"]) == (1, "NOT_ALLOWED")
    assert redrive("approvals", "approve", approval, "--by", "bob").code == 0
    go_on(redrive)
    assert redrive("failed", "--json").json["total"] == 0
    assert redrive("retry", ids[1]).code == 0, "what was given up can be brought back"
    assert redrive("purge").code == 2
    # By kind: the example's clock may have fired meanwhile.
    said = redrive("purge", "--queue", "default", "--kind", "VIDEO_GEN", "--dry-run").out
    assert "would purge 1 task (waiting, kind VIDEO_GEN, queue default)" in said and "second operator" in said


def test_what_one_person_may_do_alone(redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = make_failures(redrive, 3)
    monkeypatch.setenv("REDRIVE_APPROVALS_ABOVE", "2")
    for command in (["retry", *ids], ["forget", *ids], ["replay", "--yes"], ["replay", "--kind", "VIDEO_GEN", "--yes"]):
        refused = redrive(*command)
        assert refused.code == 1 and "a second operator has to agree" in refused.err, command
    assert redrive("failed", "--json").json["total"] == 3
    refused = redrive("replay", "--limit", 3)
    assert refused.code == 1 and "a second operator has to agree" in refused.err, "a bound is no way around"
    assert redrive("replay", "--limit", 2).code == 0
    told = redrive("replay", "--dry-run").out
    assert "1 task would be replayed" in told and "a second operator has to agree, because 1 task and the 2 of" in told
    again = redrive("replay", "--yes")
    assert again.code == 1 and "a second operator has to agree" in again.err
    assert redrive("replay", "--yes", "--by", "somebody-else").code == 0, "also where that is all there is"


def test_verify_before_the_first_prune(redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive("migrate")
    monkeypatch.setenv("TASK_AUDIT_ARCHIVE", "archive")
    assert redrive("audit", "verify").code == 0
    assert redrive("audit", "verify", "--archive", "elsewhere").code == 2
    assert redrive("audit", "verify", "--head", "zzz").code == 2


def test_what_was_looked_at_is_what_is_done(redrive) -> None:
    """A dry run makes a plan; so does the question that is asked before a bulk retry."""
    ids = make_failures(redrive, 7)
    told = redrive("retry", "--scope", "e1", "--dry-run", "--json").json
    assert (told["matched"], told["first"], told["needs_approval"]) == (7, ids[:5], None)
    said = redrive("retry", "--scope", "e1", "--dry-run", "--canary", 2, "--percent", 50, "--rate", 5).out
    assert f"redrive retry --plan {told['plan']} --rate 5 --canary 2 --percent 50" in said
    make_failures(redrive, 2)
    redrive("retry", ids[0], "--by", "bob")
    begun = redrive("retry", "--plan", told["plan"], "--yes", "--by", "ann", "--json").json["operation"]
    assert (begun["total"], begun["plan"]) == (7, told["plan"])
    go_on(redrive)
    done = redrive("operations", "show", begun["id"], "--json").json
    assert (done["status"], done["done"], done["skipped"]) == ("completed", 6, 1)
    assert "1 skipped" in redrive("operations").out
    assert redrive("failed", "--json").json["total"] == 2
    assert redrive("retry", "--scope", "e1", "--yes", "--json").json["operation"]["plan"], "asked about, and bound"
    everything = redrive("flush", "--dry-run")
    assert "would flush 2 tasks (all failures)" in everything.out and "redrive forget --plan" in everything.out
    plan = everything.out.partition("--plan ")[2].split()[0]
    assert redrive("forget", "--plan", plan, "--yes").code == 2, "a plan of everything is everything"
    asked = redrive("forget", "--plan", plan, "--yes", "--fixed", "it", "--idempotent", "--json").json
    assert asked["operation"]["status"] == "waiting"
    assert "a second operator has to agree, because all failures are given up" in everything.out


def test_audit_tokens_and_limits(redrive, here: Path) -> None:
    ids = make_failures(redrive, 2)
    redrive("retry", *ids, "--by", "ann", "--reason", "=cmd()")
    assert len(redrive("audit", "--actor", "ann", "--json").json["items"]) == 3
    assert redrive("audit", "export", "audit.csv", "--action", "TASK_RETRY_BATCH_ITEM").code == 0
    rows = list(csv.DictReader(io.StringIO((here / "audit.csv").read_text())))
    assert sorted(row["task_id"] for row in rows) == sorted(ids) and rows[0]["reason"] == "'=cmd()"
    assert len(redrive("audit", "export").out.splitlines()) == 3
    assert redrive("audit", "export", "nowhere/at/all.csv").code == 2
    again = redrive("audit", "export", "audit.csv")
    assert (
        again.code == 2
        and "--force" in again.err
        and len(list(csv.reader(io.StringIO((here / "audit.csv").read_text())))) == 3
    )
    assert "of csv" in redrive("audit", "export", "audit.csv", "--force").err
    assert redrive("audit", "export", "audit.txt").code == 2 and not (here / "audit.txt").exists()
    assert "3 rows would be removed" in redrive("audit", "prune", "--older-than-days", 0, "--dry-run").out
    assert redrive("audit", "prune", "--older-than-days", 0, "--yes", "--json").json["removed"] == 3
    made = redrive("tokens", "create", "ann", "--role", "viewer", "--json").json
    assert made["token"].startswith("rdt_")
    with sqlite3.connect(here / "redrive.db") as db:
        assert made["token"].split("_", 2)[2] not in "".join(
            row[0] for row in db.execute("select body from redrive_record")
        )
    assert redrive("tokens", "create", "ann").code == 2
    assert redrive("tokens", "revoke", made["id"]).code == 0
    assert "revoked" in redrive("tokens").out
    assert redrive("limits").out.split()[-1] == "settings"
    assert redrive("limits", "VIDEO_GEN", "--concurrency", 2, "--by", "ann").code == 0
    assert "ann" in redrive("limits").out and "ann" in redrive("limits", "VIDEO_GEN").out
    assert redrive("limits", "VIDEO_GUN").code == 2
    assert redrive("limits", "VIDEO_GEN", "--none").code == 0
    assert redrive("limits", "--concurrency", 2).code == 2


def test_doctor(redrive) -> None:
    redrive("migrate")
    make_failures(redrive, 1)
    redrive("enqueue", "--app", APP, "SYSTEM_HEALTH_CHECK", "--queue", "reports")
    redrive("pause", "--kind", "SHOT_RENDER", "--force", "--by", "ann")
    said = redrive("doctor")
    assert said.code == 1
    assert (
        "no live worker serves queue reports" in said.out
        and "redrive work --app module:app --queue reports" in said.out
    )
    assert "failed by TASK_PAYLOAD_UNSUPPORTED" in said.out and "kind SHOT_RENDER was paused by ann" in said.out
    assert redrive("doctor", "--queue", "nope").code == 2
    found = redrive("doctor", "--queue", "default", "--json").json
    assert "reports" not in json.dumps(found)
    with sqlite3.connect("redrive.db") as db:
        db.execute("drop index redrive_task_ready")
    assert "the index redrive_task_ready is missing" in redrive("doctor").out


def test_doctor_shows_the_notes_of_those_who_know(redrive, here: Path) -> None:
    redrive("migrate")
    notes = (
        '[redrive_triage.default]\nlook = "is the farm up?"\nproblems = ["the licence ran out"]\ntables = ["shot"]\n'
    )
    (here / "redrive.toml").write_text(notes)
    make_failures(redrive, 1)
    said = redrive("doctor").out
    assert "is the farm up?" in said and "typical: the licence ran out" in said and "business tables: shot" in said
    redrive("enqueue", "SYSTEM_HEALTH_CHECK", "--queue", "other")
    assert redrive("doctor", "--queue", "other", "--json").json["triage"] == {}
    (here / "redrive.toml").write_text("[redrive_triage.default]\nlok = 1\n")
    assert redrive("doctor").code == 2


@pytest.mark.thorough
@pytest.mark.timeout(300)  # three rounds of commands, each a process
def test_smoke_says_what_it_skipped(start, redrive, here: Path) -> None:
    (here / "plain.py").write_text(
        "from redrive import App\napp = App('sqlite:///plain.db')\n@app.task('P')\nasync def p(ctx): ...\n"
    )
    facts = start("up", "--app", "plain:app", "--port", 0, "--json").document()
    lenient = redrive("smoke", facts["http"], "--app", "plain:app")
    last = lenient.out.splitlines()[-1]
    assert (lenient.code, last) == (0, "6 checks: 4 ok, 2 skipped (unsupported kind and retry, business row)")
    strict = redrive("smoke", facts["http"], "--app", "plain:app", "--strict", "--json")
    assert (strict.code, strict.json["ok"], strict.json["skipped"]) == (1, 4, 2)
    elsewhere = redrive("smoke", facts["http"], "--json")
    assert {check["check"]: check["verdict"] for check in elsewhere.json["checks"]}["command line"] == "skipped"
    redrive("migrate", "--url", "sqlite:///other.db")
    wrong = redrive("smoke", facts["http"], "--url", "sqlite:///other.db")
    assert wrong.code == 1 and "is it the instance's store?" in wrong.out


@pytest.mark.timeout(400)
def test_the_journey_through_real_processes(start, redrive) -> None:
    facts = start("up", "--app", APP, "--port", 0, "--json").document()
    start("work", "--app", APP, "--concurrency", 5)
    http = httpx.Client(base_url=facts["http"], timeout=30)
    smoke = redrive("smoke", facts["http"], "--strict", "--json")
    assert (smoke.code, smoke.json["skipped"]) == (0, 0), smoke.json
    assert "command line" in {check["check"] for check in smoke.json["checks"]}
    drill = redrive("drill", "--by", "ann", "--api", facts["http"], "--out", "drill.md", "--json").json
    assert drill["passed"] and drill["conclusion"] == "passed", drill
    assert {"the API shows it", "the command line shows it"} < {step["name"] for step in drill["steps"]}
    alone = redrive("drill", "--by", "ann", "--json").json  # nobody listens at the usual address
    assert alone["conclusion"] == "passed, but skipped: the API shows it", alone
    assert redrive("drill", "--by", "ann", "--api", "http://127.0.0.1:1").code == 1
    assert "conclusion: passed" in Path("drill.md").read_text() and "passed" in redrive("drill", "--history").out
    ids = [http.post("/api/tasks", json={"kind": "VIDEO_GEN", "scope": "e7"}).json()["id"] for _ in range(7)]
    path = "/api/tasks/dead-letters"
    first = _until(
        lambda: http.get(f"{path}/preview?episodeId=e7&pageSize=4").json(), lambda found: found["total"] == 7
    )
    second = http.get(f"{path}/preview?episodeId=e7&pageSize=4&page=2").json()
    assert sorted(first["taskIds"] + second["taskIds"]) == sorted(ids)
    done = http.post(f"{path}/retry", json={"taskIds": ids[:3], "reason": "journey", "actor": "ann"}).json()
    assert done["retried"] == ids[:3]
    where = {"batchId": done["batchId"]}
    items = http.get("/api/tasks/audit-logs", params={**where, "auditAction": "TASK_RETRY_BATCH_ITEM"}).json()["items"]
    assert sorted(row["taskId"] for row in items) == sorted(ids[:3])
    pages = [
        http.get("/api/tasks/audit-logs", params={**where, "auditPageSize": 2, "auditPage": n}).json() for n in (1, 2)
    ]
    assert len({row["id"] for page in pages for row in page["items"]}) == 4
    exported = http.get("/api/tasks/audit-logs/export", params={**where, "format": "csv"}).text
    assert len(exported.splitlines()) == 5
    pruned = http.post("/api/tasks/audit-logs/prune", json={"olderThanDays": 0, **where}).json()
    assert pruned["removed"] == 4
    assert http.get("/api/tasks/audit-logs", params=where).json()["items"] == []
    ops = http.get("/api/tasks/ops", params={"auditAction": "TASK_AUDIT_PRUNE_SUMMARY"}).json()
    assert [row["batchId"] for row in ops["recentAuditLogs"]] == [pruned["batchId"]]


@pytest.mark.timeout(400)
def test_an_operation_goes_on_after_every_kill(start, redrive) -> None:
    make_failures(redrive, 12)
    begun = redrive("retry", "--kind", "VIDEO_GEN", "--rate", 5, "--yes", "--by", "ann", "--json").json["operation"]
    for _ in range(2):
        before = _operation(redrive, begun["id"])["done"]
        if before == 12:  # a slow machine was through before it was looked at
            break
        worker = start("work", "--app", APP, "--queue", "elsewhere")
        _until(lambda: _operation(redrive, begun["id"])["done"], lambda done, least=before: done > least)
        os.kill(worker.process.pid, signal.SIGKILL)
    start("work", "--app", APP, "--queue", "elsewhere")
    watched = redrive("operations", "watch", begun["id"], "--json").json
    assert (watched["status"], watched["done"], watched["skipped"]) == ("completed", 12, 0)
    assert len(redrive("audit", "--action", "TASK_RETRY_BATCH_ITEM", "--limit", 100, "--json").json["items"]) == 12


def _operation(redrive, operation_id: str) -> Any:
    return redrive("operations", "show", operation_id, "--json").json


def _until(look: Any, enough: Any, seconds: float = 120) -> Any:
    ends = time.monotonic() + seconds
    while not enough(found := look()):
        assert time.monotonic() < ends, f"still {found}"
        time.sleep(0.1)
    return found


def test_schedules_are_listed_run_paused_and_resumed(redrive) -> None:
    assert redrive("migrate").code == 0
    assert "no application has declared a schedule" in redrive("schedules").out
    redrive("work", "--app", APP, "--stop-when-empty")
    [listed] = redrive("schedules", "--json").json["items"]
    name = listed["name"]
    assert listed["paused"] is None and name in redrive("schedules").out
    ran = redrive("schedules", "run", name, "--by", "ann", "--reason", "now", "--json")
    assert redrive("show", ran.json["id"], "--json").json["task"]["kind"] == listed["kind"]
    assert redrive("pause", "--schedule", name, "--reason", "holiday").code == 0
    assert "paused" in redrive("schedules").out
    assert redrive("stats", "--json").json["schedules"][0]["paused"]["reason"] == "holiday"
    [fix] = [one["fix"] for one in redrive("doctor", "--json").json["findings"] if one["about"] == ["schedule", name]]
    assert redrive(*fix.split()[1:]).code == 0
    assert redrive("schedules", "--json").json["items"][0]["paused"] is None
    wrong = redrive("pause", "--schedule", "weekly")
    assert wrong.code == 1 and name in wrong.err
