"""What each command does and says, on SQLite; one walk over PostgreSQL."""

from __future__ import annotations

import io
import json
import shlex
from datetime import datetime
from pathlib import Path

import pytest

from redrive.cli.root import root
from redrive.cli.support.help_page import first_sentence
from redrive.cli.table import COMMANDS, EXAMPLES, FEATURES, HIDDEN
from redrive.features import installed
from redrive.stores.sqlite.migrate import STEPS

APP = "redrive_kit.examples.shots:app"


def test_an_empty_call_shows_the_commands(redrive) -> None:
    said = redrive()
    assert said.code == 0
    for command in ("up", "work", "migrate", "enqueue", "show", "list", "stats", "pause", "resume", "cancel", "retry"):
        assert command in said.out
    assert "Exit codes" in said.out


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_is_complete_and_its_examples_are_right(redrive, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    said = redrive(command, "--help")
    assert said.code == 0 and "Exit codes" in said.out
    known = root().commands[command]
    for parameter in known.params:
        assert parameter.help, f"{parameter.name} says what it is"
    for example in EXAMPLES[command]:
        assert example in said.out
        program, name, *arguments = shlex.split(example)
        assert (program, name) == ("redrive", command)
        known.make_context(command, arguments)  # refuses what the command does not take


def test_every_command_has_an_example() -> None:
    brought = {feature.called for feature in installed()}  # their pages in docs/ have them
    assert set(EXAMPLES) == set(root().commands) - set(HIDDEN) - brought


def test_what_features_say_of_their_commands_is_what_those_say(redrive) -> None:
    known = root().commands
    assert {feature.called: feature.about for feature in installed()} == FEATURES
    for feature in installed():
        if feature.commands is not None:
            assert feature.about == first_sentence(known[feature.called].help)
            assert feature.called in redrive("--help").out


def test_the_page_of_all_commands_says_what_they_say_themselves(redrive) -> None:
    known = root().commands
    told = {name: line for listed in COMMANDS.values() for name, (_, line) in listed.items()}
    assert told == {name: first_sentence(known[name].help) for name in told}
    assert all(len(line) < 200 for line in told.values())
    shown = " ".join(redrive("--help").out.replace("│", " ").split())
    assert [name for name, line in told.items() if f"{name} {line}" not in shown] == []


def test_help_says_what_there_is_in_its_order(redrive) -> None:
    for arguments in (["causes"], ["list"], ["enqueue"], ["causes", "retry"]):
        said = redrive(*arguments, "--help").out
        titles = [line.split("─")[1].strip() for line in said.splitlines() if line.startswith("╭")]
        wanted = [title for title in ("Arguments", "Options", "Which tasks", "Commands") if title in titles]
        assert titles == wanted, arguments
        assert "completion" not in said and "<" not in said.partition("╭")[2].partition("Options")[0], arguments


def test_help_fits_the_terminal_and_can_be_copied(redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    for width in ("40", "72", "130"):
        monkeypatch.setenv("COLUMNS", width)
        for arguments in (["--help"], ["list", "--help"], ["causes", "--help"], ["causes", "mute", "--help"]):
            lines = redrive(*arguments).out.splitlines()
            boxes = {len(line) for line in lines if line.startswith(("╭", "│", "╰"))}
            texts = [line for line in lines if not line.startswith(("╭", "│", "╰", "   "))]
            assert boxes == {int(width)} and max(map(len, texts)) <= int(width), (width, arguments)


def test_version(redrive) -> None:
    assert redrive("version", "--json").json["redrive"]
    assert redrive("version").out.startswith("redrive ")
    assert redrive("--version").out == redrive("version").out


def test_enqueue_with_every_option(redrive) -> None:
    options = "--queue q --priority 3 --delay 60 --max-attempts 4 --timeout 5 --group g --scope s --trace-id t"
    said = redrive("enqueue", "ANY", '{"n": 1}', *options.split(), "--idempotency-key", "k", "--json")
    assert said.code == 0
    task = said.json
    expected = {"kind": "ANY", "queue": "q", "priority": 3, "max_attempts": 4, "timeout": 5.0, "group": "g"}
    expected |= {"scope": "s", "trace_id": "t", "idempotency_key": "k", "state": "delayed", "payload": {"n": 1}}
    assert {name: task[name] for name in expected} == expected
    again = redrive("enqueue", "ANY", '{"n": 1}', "--queue", "q", "--key", "k", "--json")
    assert again.json["id"] == task["id"] and again.json["deduplicated"]
    conflict = redrive("enqueue", "ANY", '{"n": 2}', "--key", "k", "--json")
    assert (conflict.code, conflict.out, conflict.error["code"]) == (1, "", "IDEMPOTENCY_CONFLICT")


def test_payloads_from_files_and_stdin(redrive, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "p.json").write_text('{"from": "file"}')
    assert redrive("enqueue", "ANY", "--payload-file", "p.json", "--json").json["payload"] == {"from": "file"}
    monkeypatch.setattr("sys.stdin", io.StringIO("[1, 2]"))
    assert redrive("enqueue", "ANY", "--payload-file", "-", "--json").json["payload"] == [1, 2]
    assert redrive("enqueue", "ANY", "--payload-file", "missing.json").code == 2
    assert redrive("enqueue", "ANY", "{}", "--payload-file", "p.json").code == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["ANY", "not json"], "TASK_PAYLOAD_INVALID"),
        (["ANY", '{"a": NaN}'], "TASK_PAYLOAD_INVALID"),
        (["ANY", "--delay", "-1"], "INPUT_INVALID"),
        (["ANY", "--run-at", "tomorrow"], "INPUT_INVALID"),
        (["bad kind"], "INPUT_INVALID"),
        (["ANY", "--queue", "no/such"], "INPUT_INVALID"),
        (["SHOT_SET_STATUS", "{}", "--app", APP], "TASK_PAYLOAD_INVALID"),
        (["SHOT_SET_STATUS", "--app", APP], "TASK_PAYLOAD_MISSING"),
        (["SHOT_SET_STATSU", "{}", "--app", APP], "KIND_UNKNOWN"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(redrive, arguments: list[str], code: str) -> None:
    said = redrive("enqueue", *arguments, "--json")
    assert (said.code, said.out, said.error["code"]) == (2, "", code)
    assert "Traceback" not in said.err
    assert redrive("enqueue", "ANY", "--json").code == 0
    assert len(redrive("list", "--json").json["items"]) == 1


def test_list_filters_and_pages(redrive) -> None:
    for n in range(3):
        redrive("enqueue", "A", "--queue", "x", "--scope", f"s{n}")
    redrive("enqueue", "B", "--delay", 60, "--group", "g", "--trace-id", "t")

    def kinds(*filters: object) -> list[str]:
        return [task["kind"] for task in redrive("list", "--json", *filters).json["items"]]

    assert kinds() == ["B", "A", "A", "A"]
    assert kinds("--state", "delayed,paused") == ["B"]
    assert kinds("--kind", "A", "--scope", "s1") == ["A"]
    assert kinds("--queue", "x") == ["A"] * 3
    assert kinds("--group", "g") == kinds("--trace-id", "t") == ["B"]
    assert kinds("--error-code", "X") == kinds("--error-reason", "timeout") == []
    assert redrive("list", "--fingerprint", "0123456789abcdef").code == 1
    first = redrive("list", "--json", "--limit", 3).json
    rest = redrive("list", "--json", "--limit", 3, "--before", first["next"]).json
    assert (len(first["items"]), len(rest["items"]), rest["next"]) == (3, 1, None)
    table = redrive("list").out
    assert all(task["id"] in table for task in first["items"] + rest["items"])
    assert redrive("list", "--state", "nonsense").code == 2
    assert "no tasks match" in redrive("list", "--kind", "A", "--state", "failed").out
    assert "nothing is known of a kind 'C'" in redrive("list", "--kind", "C").err


def test_a_failure_from_work_to_retry(redrive) -> None:
    made = redrive("enqueue", "--app", APP, "SHOT_PUBLISH", '{"shot_id": "s-1"}', "--json").json
    worked = redrive("work", "--app", APP, "--stop-when-empty", "--id", "w-1", "--json")
    assert worked.code == 0
    assert (worked.json["worker_id"], worked.json["failed"]) == ("w-1", 1)
    found = redrive("show", made["id"], "--json").json
    assert found["task"]["error_code"] == "SHOT_RIGHTS_MISSING"
    assert [letter["reason"] for letter in found["dead_letters"]] == ["non_retryable"]
    shown = redrive("show", made["id"], "--stack").out
    for part in (made["id"], "attempt 1 failed", "SHOT_RIGHTS_MISSING", "w-1", "dead letter", '"shot_id": "s-1"'):
        assert part in shown
    plain = redrive("show", made["id"]).out
    assert "examples/shots.py:" in plain and f"redrive show {made['id']} --stack" in plain.replace("\n", "")
    assert "raised at" not in shown and "Traceback" in shown
    listed = redrive("list", "--fingerprint", found["task"]["error_fingerprint"], "--json").json
    assert [task["id"] for task in listed["items"]] == [made["id"]]
    retried = redrive("retry", made["id"], "--by", "ann", "--reason", "rights are cleared", "--json")
    assert (retried.code, retried.json["done"]) == (0, [made["id"]])
    again = redrive("retry", made["id"], "--json")
    assert (again.code, again.error["code"]) == (1, "TRANSITION_INVALID")
    assert made["id"] in again.json["skipped"]
    assert "by ann: rights are cleared" in redrive("show", made["id"]).out


def test_where_an_earlier_failure_was_raised_is_not_shown_for_another(redrive, tmp_path: Path) -> None:
    """The second failure is raised nowhere: an older worker, which has no such handler."""
    made = redrive("enqueue", "--app", APP, "SHOT_PUBLISH", '{"shot_id": "s-1"}', "--json").json["id"]
    redrive("work", "--app", APP, "--stop-when-empty")
    redrive("retry", made)
    (tmp_path / "older.py").write_text("from redrive import App\napp = App()\n")
    redrive("work", "--app", "older:app", "--stop-when-empty")
    shown = redrive("show", made).out
    assert "TASK_PAYLOAD_UNSUPPORTED" in shown and "TASK_WORKER_UNKNOWN_KIND=leave" in shown
    assert "attempt 1 after retry 1 failed" in shown and "raised at" not in shown
    assert "stack of attempt 1," in redrive("show", made, "--stack").out


def test_actors_by_option_environment_and_login(redrive, monkeypatch: pytest.MonkeyPatch) -> None:
    def actor_of_cancel(*options: str) -> str:
        made = redrive("enqueue", "ANY", "--json").json
        assert redrive("cancel", made["id"], *options).code == 0
        return redrive("show", made["id"], "--json").json["audit"][-1]["actor"]

    monkeypatch.setenv("LOGNAME", "login")
    assert actor_of_cancel() == "login"
    monkeypatch.setenv("REDRIVE_ACTOR", "robot")
    assert actor_of_cancel() == "robot"
    assert actor_of_cancel("--by", "ann") == "ann"


def test_cancel_answers_for_each_task(redrive) -> None:
    made = redrive("enqueue", "ANY", "--json").json["id"]
    missing = "01a1dd31-8ece-7476-a288-1dbda8bebfb9"
    said = redrive("cancel", made, missing)
    assert said.code == 1
    assert f"{made}  cancelled" in said.out
    assert f"there is no task {missing}" in said.err
    again = redrive("cancel", made)
    assert "it is cancelled" in again.err and "→ redrive show" in again.err
    assert redrive("cancel", "xyz").code == 2
    assert redrive("cancel").code == 2


def test_why_it_was_cancelled_is_no_error(redrive) -> None:
    made = redrive("enqueue", "ANY", "--json").json["id"]
    redrive("cancel", made, "--reason", "ordered twice")
    assert "cancelled because: ordered twice" in redrive("show", made).out
    assert "error" not in redrive("show", made).out
    assert "ordered twice" in redrive("list").out


def test_pause_and_resume(redrive) -> None:
    made = redrive("enqueue", "A", "--queue", "mail", "--group", "g", "--json").json["id"]
    for target, name in (("queue", "mail"), ("kind", "A"), ("group", "g")):
        paused = redrive("pause", f"--{target}", name, "--reason", "look", "--json")
        assert paused.json == {"target": target, "name": name, "paused": True, "changed": True}
        assert "already" in redrive("pause", f"--{target}", name).out
        assert name in redrive("stats").out
        assert redrive("resume", f"--{target}", name, "--json").json["changed"]
        assert "was not paused" in redrive("resume", f"--{target}", name).out
    assert redrive("pause", made).code == 0
    assert redrive("show", made, "--json").json["task"]["state"] == "paused"
    assert redrive("resume", made, "--json").json["done"] == [made]


def test_pausing_what_nobody_knows_lists_what_is_known(redrive) -> None:
    redrive("enqueue", "A", "--queue", "mail")
    queue = redrive("pause", "--queue", "mial", "--json")
    assert (queue.code, queue.error["code"]) == (2, "QUEUE_UNKNOWN")
    assert "mail" in queue.error["hint"]
    kind = redrive("pause", "--kind", "B", "--json")
    assert (kind.code, kind.error["code"]) == (2, "KIND_UNKNOWN")
    assert redrive("pause", "--kind", "B", "--force").code == 0
    assert redrive("resume", "--kind", "B").code == 0
    assert redrive("pause").code == 2
    assert redrive("pause", "--kind", "A", "--queue", "mail").code == 2


def test_stats(redrive) -> None:
    redrive("enqueue", "A", "--queue", "mail")
    redrive("enqueue", "B")
    found = redrive("stats", "--json").json
    assert found["totals"]["queued"] == 2
    assert found["queues"]["mail"]["queued"] == 1
    assert found["kinds"]["B"]["queued"] == 1
    assert {"holds", "limits", "workers", "failure_groups", "schedules"} <= set(found)
    assert "mail" in redrive("stats").out


def test_work_without_an_app_refuses_what_it_would_fail(redrive) -> None:
    redrive("enqueue", "SYSTEM_HEALTH_CHECK")
    done = redrive("work", "--stop-when-empty", "--json")
    assert (done.code, done.json["completed"]) == (0, 1)
    assert "worker.no_app" in done.err
    made = redrive("enqueue", "MINE", "--json").json["id"]
    refused = redrive("work", "--stop-when-empty")
    assert refused.code == 1
    assert "MINE" in refused.err and "--app" in refused.err
    assert redrive("show", made, "--json").json["task"]["state"] == "queued"


@pytest.mark.parametrize(
    "options", [["--sleep", "0"], ["--max-time", "-1"], ["--timeout", "-1"], ["--queue", ","], ["--queue", "a b"]]
)
def test_work_refuses_options_that_make_no_sense(redrive, options: list[str]) -> None:
    said = redrive("work", *options)
    assert said.code == 2
    assert said.err.startswith("error: ")


def test_work_takes_queues_in_order_and_stops_after_jobs(redrive) -> None:
    for queue in ("low", "high"):
        redrive("enqueue", "SYSTEM_HEALTH_CHECK", "--queue", queue)
    said = redrive("work", "--queue", "high,low", "--queue", "default", "--once", "--json")
    assert said.json["claimed"] == 1
    assert redrive("stats", "--json").json["queues"]["high"]["completed"] == 1


def test_migrations(redrive, here: Path) -> None:
    fresh = redrive("migrate", "--status", "--json")
    assert fresh.json["version"] == 0 and fresh.json["pending"]
    assert redrive("migrate", "--json").json["steps"] == fresh.json["pending"]
    assert redrive("migrate", "--json").json["steps"] == []
    assert "create table" in redrive("migrate", "--sql").out.lower()
    assert "drop" in redrive("migrate", "--sql", "--down", "--json").json["sql"].lower()
    assert redrive("migrate", "--down").code == 2
    assert redrive("migrate", "--to", "99").code == 2
    assert redrive("migrate", "--to", "0").code == 2
    refused = redrive("migrate", "--down", "--to", "0")
    assert refused.code == 2 and "--yes" in refused.err
    down = redrive("migrate", "--down", "--to", "0", "--yes")
    assert down.code == 0 and "removed 0001" in down.out
    grants = redrive("migrate", "--grant-producer", "web", "--json")
    assert (grants.code, grants.error["code"]) == (2, "INPUT_INVALID")


def test_going_down_names_the_features_whose_tables_stay(redrive, here: Path) -> None:
    (here / "with_orders.py").write_text(
        "from redrive import App\nfrom redrive_kit.examples.orders import ORDERS\napp = App(features=[ORDERS])\n"
    )
    assert redrive("migrate", "--app", "with_orders:app").code == 0
    down = redrive("migrate", "--down", "--to", "0", "--yes")
    assert down.code == 0 and "left with their rows: the tables of orders" in down.out
    down = redrive("migrate", "--down", "--to", "0", "--yes", "--app", "with_orders:app", "--json")
    assert (down.json["left"], down.json["steps"]) == ([], ["orders/0001_parcels"])
    assert "left" not in redrive("migrate", "--down", "--to", "0", "--yes").out


def test_the_status_of_migrations(redrive, here: Path) -> None:
    fresh = redrive("migrate", "--status")
    assert "version 0 of" in fresh.out and "pending 0001_tables" in fresh.out
    assert not list(here.iterdir()), "looking makes no file"
    redrive("migrate")
    found = redrive("migrate", "--status", "--json").json
    applied = [(step["version"], step["name"]) for step in found["applied"]]
    assert applied == [(step.version, step.name) for step in STEPS] and applied[0] == (1, "tables")
    assert all(set(step) == {"version", "name", "applied_at"} for step in found["applied"])
    assert datetime.fromisoformat(found["applied"][0]["applied_at"]).tzinfo is not None
    shown = redrive("migrate", "--status").out
    assert "up to date" in shown and "tables" in shown


@pytest.mark.parametrize(
    "options",
    [
        ["--to", "-1"],
        ["--status", "--sql"],
        ["--status", "--to", "1"],
        ["--status", "--grant-worker", "w"],
        ["--sql", "--grant-producer", "p"],
        ["--down", "--to", "1", "--grant-worker", "w"],
    ],
)
def test_migrate_refuses_options_that_contradict_each_other(redrive, here: Path, options: list[str]) -> None:
    said = redrive("migrate", *options)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: ") and "redrive migrate --help" in said.err
    assert not list(here.iterdir())


def test_what_is_paused_is_said_of_the_tasks_it_holds(redrive) -> None:
    made = redrive("enqueue", "A", "--queue", "mail", "--group", "team a", "--json").json["id"]
    late = redrive("enqueue", "A", "--delay", 600, "--json").json["id"]
    free = redrive("enqueue", "B", "--json").json["id"]

    def paused(task_id: str) -> list[dict[str, str]]:
        return [reason for reason in redrive("show", task_id, "--json").json["why"] if reason["code"] == "paused"]

    assert paused(made) == []
    redrive("pause", "--kind", "A", "--by", "ann", "--reason", "look first")
    redrive("pause", "--group", "team a", "--by", "bob")
    shown = redrive("show", made).out
    assert "why: kind A was paused by ann: look first; redrive resume --kind A" in shown
    assert "why: group team a was paused by bob; redrive resume --group 'team a'" in shown
    [first, second] = paused(made)
    assert (first["text"], first["fix"]) == ("kind A was paused by ann: look first", "redrive resume --kind A")
    assert second["fix"] == "redrive resume --group 'team a'"
    rows = {line.split()[0]: line for line in redrive("list").out.splitlines()[1:]}
    assert "held: kind A paused by ann: look first (and 1 more)" in rows[made]
    assert "held: kind A paused by ann" in rows[late] and "more" not in rows[late]
    assert "held" not in rows[free] and "paused" not in redrive("show", free).out
    redrive("cancel", made)
    assert paused(made) == [], "only what waits is held"


def test_looking_in_the_wrong_place_makes_no_database(redrive, here: Path) -> None:
    for command in (["list"], ["stats"], ["show", "01a1dd31-8ece-7476-a288-1dbda8bebfb9"], ["pause", "--queue", "q"]):
        said = redrive(*command)
        assert said.code == 3
        assert "there is no SQLite file" in said.err
    assert not list(here.iterdir())
    assert redrive("enqueue", "ANY", "--url", "sqlite:///:memory:").code == 1


def test_stores_that_cannot_be_used(redrive) -> None:
    unknown = redrive("list", "--url", "mysql://x", "--json")
    assert (unknown.code, unknown.error["code"]) == (2, "CONFIG_INVALID")
    misspelt = redrive("stats", "--url", "sqlite3://u:secret@x")
    assert misspelt.code == 2 and "sqlite3:…" in misspelt.err and "secret" not in misspelt.err
    assert redrive("stats", "--url", "postgresql://db:port/x").code == 2
    gone = redrive("list", "--url", "postgresql://postgres@127.0.0.1:1/x", "--json")
    assert (gone.code, gone.error["code"]) == (3, "STORE_UNAVAILABLE")
    usage = redrive("list", "--nonsense", "--json")
    assert (usage.code, usage.error["code"]) == (2, "USAGE")


def test_the_same_on_postgresql(redrive, empty_postgres_url: str) -> None:
    where = ("--url", empty_postgres_url)
    early = redrive("list", *where)
    assert early.code == 1 and "redrive migrate" in early.err
    assert redrive("migrate", *where).code == 0
    set_status = ("enqueue", "SHOT_SET_STATUS", '{"shot_id": "s-1", "status": "done"}', *where, "--app", APP, "--json")
    made, *_ = [redrive(*set_status) for _ in range(4)]
    worked = redrive("work", "--stop-when-empty", "--concurrency", 4, *where, "--app", APP, "--json")
    # Together: the first one makes the table, and the others do not trip over it.
    assert (worked.json["completed"], worked.json["requeued"]) == (4, 0)
    found = redrive("show", made.json["id"], *where, "--json").json
    assert found["task"]["state"] == "completed"
    assert redrive("pause", "--queue", "default", *where).code == 0
    assert redrive("stats", *where, "--json").json["holds"][0]["name"] == "default"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["enqueue", "A", "--delay", "1", "--run-at", "2030-01-01T00:00:00Z"], 2, "--delay or --run-at, not both"),
        (["enqueue", "A", '{"a": 1,,}'], 2, """line 1, column 9, near '{"a": 1,,}'"""),
        (["enqueue", "A", "--payload-file", "none.json"], 2, "none.json cannot be read: No such file"),
        (["work", "--max-time", "0"], 2, "--max-time 0.0: it has to be more than 0"),
        (["pause"], 2, "error: say what: --queue, --kind"),
        (["stats"], 3, "nor --app says another"),
        (["show"], 2, "Missing argument 'ID'"),
        (["lst"], 2, "No such command 'lst'"),
    ],
)
def test_every_refusal_says_what_and_what_to_do(redrive, arguments: list[str], code: int, says: str) -> None:
    said = redrive(*arguments)
    assert (said.code, said.out) == (code, "")
    assert says in said.err and "\n→ " in said.err


def test_a_time_without_its_zone_is_refused(redrive) -> None:
    said = redrive("enqueue", "SYSTEM_HEALTH_CHECK", "--run-at", "2030-01-31T09:00:00", "--json")
    assert (said.code, said.error["code"]) == (2, "INPUT_INVALID")
    assert "no time zone" in said.error["message"] and "2030-01-31T09:00:00Z" in said.error["hint"]
    assert redrive("enqueue", "SYSTEM_HEALTH_CHECK", "--run-at", "2030-01-31T09:00:00Z").code == 0


def test_a_map_that_is_no_json_names_its_variable(redrive, monkeypatch) -> None:
    monkeypatch.setenv("TASK_WORKER_KIND_RATE_LIMIT_MS", "A=1")
    said = redrive("stats")
    assert said.code == 2 and "TASK_WORKER_KIND_RATE_LIMIT_MS" in said.err and "A=1" in said.err


def test_work_warns_of_what_looks_misspelt(redrive, monkeypatch) -> None:
    monkeypatch.setenv("TASK_WORKER_CONCURENCY", "3")
    monkeypatch.setenv("REDRIVE_ULR", "x")
    said = redrive("work", "--queue", "default,nosuch", "--stop-when-empty")
    assert said.code == 0
    lines = [json.loads(line) for line in said.err.splitlines()]
    warned = [line["message"] for line in lines if line["level"] == "warning"]
    assert any("TASK_WORKER_CONCURENCY" in text and "mean TASK_WORKER_CONCURRENCY?" in text for text in warned)
    assert any("REDRIVE_ULR" in text for text in warned)
    assert [text for text in warned if "queue" in text] == ["no queue is named nosuch so far; known queues: default"]
