"""What holds for every command: one JSON shape for lists, exit codes as documented, suggestions that can be typed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from redrive.api.filters import FilterIn
from redrive.cli.main import run
from redrive.cli.root import root
from redrive.cli.support import output
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.reads import Query
from redrive.ops.filters import FAILURE_FILTERS, FILTERS, TIMES

ID = "0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b"
NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
LISTS = ["list", "failed", "causes", "operations", "approvals", "audit", "tokens", "limits", "drill --history"]
# One of each way to a store: a list of all connections, one thing by its id, what is declared, what acts on a whole
# connection or where a queue is, what makes a file, what features bring.
TO_A_STORE = [
    "list",
    "stats",
    "show ID",
    "causes retry abcd1234 --yes",
    "circuits open far",
    "schedules run nightly",
    "workers drain w1",
    "cancel ID",
    "purge --queue default --yes",
    "pause ID",
    "pause --queue default",
    "audit export",
    "audit prune --older-than-days 1 --yes",
    "erase --task ID --yes",
    "doctor",
    "limits",
    "batch show ID",
    "ledger credit acme 1 --reason paid",
    "webhooks ping ep_1",
    "outbox rebuild search_index_to_elastic",
]
MAKES_A_FILE = ["enqueue A", "tokens create ann", "migrate", "webhooks add https://example.com/hook"]
UNKNOWN = [
    "show ID",
    "cancel ID",
    "resume ID",
    "operations show x",
    "operations put-back x",
    "approvals approve x",
    "tokens revoke x",
    "causes show abcd1234",
    "causes retry abcd1234 --yes",
    "batch items ID",
    "batch charge ID --reason lost --yes",
]


def commands() -> Iterator[str]:
    """Every command, as it is typed; former names are left out."""
    for name, command in root().commands.items():
        if command.hidden:
            continue
        inner = getattr(command, "commands", None)
        yield name
        if inner:
            yield from (f"{name} {part}" for part in inner)


ALL = sorted(commands())


def test_help_is_no_failure_and_nonsense_is(redrive: Any) -> None:
    for command in ALL:
        assert redrive(*command.split(), "--help").code == 0, command
        refused = redrive(*command.split(), "--no-such-option", "--json")
        assert (refused.code, refused.error["code"]) == (2, "USAGE"), command


@pytest.mark.parametrize("command", [*TO_A_STORE, *MAKES_A_FILE])
def test_a_store_that_cannot_be_reached_is_3(redrive: Any, command: str) -> None:
    arguments = [ID if part == "ID" else part for part in command.split()]
    said = redrive(*arguments, "--url", NOWHERE, *([] if command == "audit export" else ["--json"]))
    assert said.code == 3, said.err
    if command in TO_A_STORE:
        missing = redrive(*arguments, "--url", "sqlite:///nowhere/x.db")
        assert missing.code == 3, missing.err


def test_what_there_is_not_is_1(redrive: Any) -> None:
    assert redrive("migrate").code == 0
    for command in UNKNOWN:
        said = redrive(*[ID if part == "ID" else part for part in command.split()], "--json")
        assert said.code == 1, (command, said.err)


def test_a_wrong_value_is_2(redrive: Any) -> None:
    redrive("migrate")
    for command in ("show", "retry", "cancel", "forget", "pause", "resume"):
        assert redrive(command, "no-id").code == 2, command
    assert redrive("failed", "--kind", "NO_SUCH_KIND").code == 2
    assert redrive("smoke", "no-address").code == 2
    assert redrive("list", "--url", "nonsense").code in (1, 2)


def test_every_list_has_one_shape(redrive: Any) -> None:
    redrive("migrate")
    for command in LISTS:
        empty = redrive(*command.split(), "--json").json
        assert (empty["items"], empty["next"]) == ([], None), command


def test_lists_go_on_where_they_were(redrive: Any) -> None:
    for _ in range(3):
        redrive("enqueue", "SYSTEM_FAIL_ALWAYS", "--max-attempts", 1)
    redrive("work", "--stop-when-empty")
    for n in range(3):
        redrive("retry", "--kind", "SYSTEM_FAIL_ALWAYS", "--yes", "--by", f"p{n}")
        redrive("flush", "--yes", "--by", f"p{n}", "--fixed", "it", "--idempotent")
    for command in ("list", "failed", "operations", "approvals", "audit"):
        seen, following = [], None
        while True:
            more = [] if following is None else ["--before", following]
            page = redrive(command, "--limit", 2, "--json", *more).json
            seen += [item["id"] for item in page["items"]]
            following = page["next"]
            if following is None:
                break
        whole = redrive(command, "--limit", 100, "--json").json
        assert seen == [item["id"] for item in whole["items"]] and len(seen) > 2, command


def test_retry_all_is_retry_everything(redrive: Any) -> None:
    redrive("enqueue", "SYSTEM_FAIL_ALWAYS", "--max-attempts", 1)
    redrive("work", "--stop-when-empty")
    told = [redrive("retry", what, "--dry-run", "--json").json for what in ("all", "--all")]
    assert told[0] == told[1] and told[0]["needs_approval"] == "everything is retried"
    assert redrive("retry", "all", ID).code == 2
    asked = redrive("retry", "all", "--yes", "--fixed", "it", "--idempotent", "--json").json
    assert asked["operation"]["status"] == "waiting"
    assert redrive("approvals", "approve", asked["approval"]["id"], "--by", "bob").code == 0


def test_suggested_commands_are_about_the_same_store_and_application(redrive: Any, here: Any) -> None:
    (here / "my shop.db").touch()
    url = "sqlite:///my shop.db"
    app = "redrive_kit.examples.shots:app"
    redrive("migrate", "--url", url)
    redrive("enqueue", "VIDEO_GEN", '{"shot_id": "s"}', "--url", url, "--app", app)
    redrive("work", "--stop-when-empty", "--url", url, "--app", app)
    given = f"--url {shlex.quote(url)} --app {app}"
    listed = redrive("failed", "--url", url, "--app", app)
    assert f"redrive show {given} ID" in listed.out
    [task] = redrive("failed", "--url", url, "--json").json["items"]
    assert f"redrive retry --url {shlex.quote(url)} {task['id']}" in redrive("show", task["id"], "--url", url).out
    told = redrive("retry", "--kind", "VIDEO_GEN", "--dry-run", f"--url={url}", "--app", app).out
    [line] = [line for line in told.splitlines() if "exactly this" in line]
    assert run([*shlex.split(line.partition("redrive ")[2]), "--yes"]) == 0
    unknown = redrive("operations", "show", "x", "--url", url)
    assert f"redrive operations --url {shlex.quote(url)} lists them" in unknown.err
    doctor = redrive("doctor", "--url", url, "--app", app).out
    assert f"redrive work {given}" in doctor and "module:app" not in doctor


def test_an_application_that_is_set_is_not_asked_for(redrive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    redrive("migrate")
    assert "redrive work --app module:app" in redrive("doctor").out
    monkeypatch.setenv("REDRIVE_APP", "redrive_kit.examples.shots:app")
    told = redrive("doctor")
    assert "→ redrive work\n" in told.out and "module:app" not in told.out
    assert {one["fix"] for one in redrive("doctor", "--json").json["findings"]} == {"redrive work"}


def test_a_schema_that_is_missing_is_made_in_the_same_place(redrive: Any, empty_postgres_url: str) -> None:
    for command in (["list"], ["doctor"], ["stats"], ["work", "--stop-when-empty"], ["enqueue", "A"], ["show", ID]):
        told = redrive(*command, "--url", empty_postgres_url)
        assert "redrive migrate --url postgresql://" in told.err + told.out, (command, told.err, told.out)


def test_hints_name_the_task(redrive: Any) -> None:
    redrive("enqueue", "SYSTEM_FAIL_ALWAYS", "--max-attempts", 1)
    redrive("work", "--stop-when-empty")
    [task] = redrive("failed", "--json").json["items"]
    assert f"redrive show {task['id']} --stack" in redrive("show", task["id"]).out
    assert "--stack" not in redrive("show", task["id"], "--stack").out.replace(ID, "")
    redrive("forget", task["id"])
    assert f"redrive show {task['id']} tells" in redrive("forget", task["id"]).err


def test_a_suggestion_shows_no_password() -> None:
    output.repeat(["list", "--url", "postgresql://u:secret@h/d"])
    assert output.suggest("redrive show ID") == "redrive show --url 'postgresql://u:…@h/d' ID"
    output.repeat(["list"])
    assert output.suggest("redrive show ID") == "redrive show ID"


def options() -> Iterator[tuple[str, Any]]:
    """Every option of every command, by how it is typed."""
    whole = root()
    for name in ALL:
        command = whole
        for part in name.split():
            command = command.commands[part]
        for parameter in command.params:
            yield from ((f"{name} {typed}", parameter) for typed in parameter.opts if typed.startswith("--"))


SELECTING = ["list", "failed", "retry", "replay", "forget"]
FIELDS = {one.option: one for one in FAILURE_FILTERS}
TIMED = {one.option for one in TIMES}
# Options of the same name that choose no tasks: what a new one gets, what a worker serves, what is paused or looked at.
GIVES = {"alerts silence", "batch create", "enqueue", "work", "up", "pause", "resume", "doctor"}


def test_every_filter_has_one_name() -> None:
    """Also over HTTP: what is error_code here is --error-code there, and errorCode."""
    found = dict(options())
    for command in SELECTING:
        wanted = set(FIELDS) - TIMED if command == "list" else set(FIELDS)
        assert {typed for typed in FIELDS if f"{command} {typed}" in found} == wanted, command
    for name, option in found.items():
        command, _, typed = name.rpartition(" ")
        if typed in FIELDS and command not in GIVES and not command.startswith(("audit", "erase", "ledger")):
            assert (option.metavar, option.help) == (FIELDS[typed].metavar, FIELDS[typed].help), name
        assert typed not in ("--trace", "--code", "--type", "--cause", "--episode", "--episode-id", "--job-kind"), name
    assert {one.field for one in FAILURE_FILTERS} == set(FailureFilter.__dataclass_fields__) - {
        "ids",
        "bulk_id",
        "forgotten",
    }
    assert {one.field for one in FILTERS} <= set(Query.__dataclass_fields__)
    in_body = set(FilterIn.model_fields)
    said = {one.field if one.said is None else "batch_id" for one in FAILURE_FILTERS}
    assert in_body == said | {"job_kind", "episode_id", "forgotten"}
    assert {one.earlier for one in FILTERS} == {None, "jobKind", "episodeId"}


def test_a_reason_is_why_somebody_acts() -> None:
    """What the error's reason is called is --error-reason: a command that acts has both."""
    found = dict(options())
    for name, option in found.items():
        if name.endswith(" --reason"):
            assert option.help == "Why, for the audit log.", name
            assert f"{name.removesuffix('--reason')}--by" in found, name


def test_what_is_listed_is_what_is_retried(redrive: Any) -> None:
    for scope in ("s1", "s2"):
        redrive(
            "enqueue", "SYSTEM_FAIL_ALWAYS", "--max-attempts", 1, "--scope", scope, "--trace-id", "t1", "--group", "g"
        )
    redrive("work", "--stop-when-empty")
    [first, _] = redrive("failed", "--json").json["items"]
    own = [one for one in FILTERS if one.field != "join"]  # these are of no batch
    given = [part for one in own for part in (one.option, str(first[NAMED.get(one.field, one.field)]))]
    assert [task["id"] for task in redrive("failed", *given, "--json").json["items"]] == [first["id"]]
    assert [task["id"] for task in redrive("list", *given, "--json").json["items"]] == [first["id"]]
    for command in ("retry", "replay", "forget"):
        assert redrive(command, *given, "--dry-run", "--json").json["matched"] == 1, command
        assert redrive(command, "--since", "1h", "--dry-run", "--json").json["matched"] == 2, command
        assert redrive(command, "--until", "1h", "--dry-run", "--json").json["matched"] == 0, command
    for one in FILTERS:
        if one.field not in ("kind", "queue", "fingerprint", "failure_type", "dead_reason", "join"):
            assert redrive("list", one.option, "nothing-like-this", "--json").json["items"] == [], one.option


NAMED = {"fingerprint": "error_fingerprint"}
