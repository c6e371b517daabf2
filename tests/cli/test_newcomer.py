"""What somebody stumbles over on the first day: every answer says where it looked and what to type next."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from redrive import App
from redrive.kernel.commit import Commit
from redrive.kernel.machine import Lease, Policy, settle
from redrive.kernel.outcome import Retry
from redrive.kernel.ports.store import ClaimRequest, Heartbeat
from tests.cli.conftest import Said

Redrive = Callable[..., Said]
UNKNOWN = "0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b"


def enqueued(redrive: Redrive, *options: object) -> str:
    said = redrive("enqueue", "SEND", "--json", *options)
    assert said.code == 0, said.err
    task_id: str = said.json["id"]
    return task_id


def test_why_by_the_beginning_of_an_id(redrive: Redrive) -> None:
    task_id = enqueued(redrive, "--delay", 600)
    said = redrive("why", task_id[:23])
    assert said.code == 0 and "due in 10 min" in said.out and task_id in said.out
    assert [one["code"] for one in redrive("why", task_id, "--json").json["why"]] == ["run_at"]
    assert redrive("cancel", task_id[:23], "--reason", "not wanted").code == 0
    assert "it is cancelled, and waits for nothing" in redrive("why", task_id[:23]).out
    assert redrive("retry", task_id[:23]).code == 0
    assert redrive("pause", task_id[:23]).code == 0
    assert f"redrive resume {task_id}" in redrive("why", task_id).out


def test_a_task_that_is_not_there_may_be_in_another_store(redrive: Redrive) -> None:
    enqueued(redrive)
    for command in (["show", UNKNOWN], ["why", UNKNOWN[:18]], ["retry", UNKNOWN], ["cancel", UNKNOWN]):
        said = redrive(*command)
        assert said.code == 1 and "or is it in another store than sqlite:///redrive.db?" in said.err, said.err


def test_a_second_attempt_is_shown_by_its_worker_and_not_by_the_first_ones_error(redrive: Redrive, here: Path) -> None:
    """As a worker that died leaves it."""
    task_id = enqueued(redrive)
    asyncio.run(_run_twice(f"sqlite:///{here}/redrive.db"))
    listed = redrive("list").out
    assert "2/5" in listed and "on w2" in listed and "TASK_EXECUTION_FAILED" not in listed
    assert redrive("cancel", task_id, "--reason", "not wanted").code == 0


async def _run_twice(url: str) -> None:
    app = App(url)
    store = await app.store()
    [first] = (await store.cycle(Commit(), ClaimRequest("w1", ("default",), 1, 600.0))).claimed
    lease = Lease(first.id, first.token, first.attempt, first.max_attempts, "w1")
    again = settle(lease, Retry("not yet", after=0), Policy(), 0.0)
    await store.apply(Commit(transitions=[again]))
    await asyncio.sleep(0.01)
    await store.tick(Heartbeat("w2", "here", 0, ("default",), 1, 0, "test", {}))
    assert (await store.cycle(Commit(), ClaimRequest("w2", ("default",), 1, 600.0))).claimed
    await app.close()


@pytest.mark.parametrize(("option", "source"), [((), "REDRIVE_URL: "), (("--url", "postgres//x"), "--url: ")])
def test_a_wrong_url_is_blamed_on_where_it_was_said(
    redrive: Redrive, here: Path, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...], source: str
) -> None:
    (here / "day.py").write_text("from redrive import App\napp = App()\n")
    monkeypatch.setenv("REDRIVE_URL", "postgres//x")
    said = redrive("stats", "--app", "day:app", *option)
    assert said.code == 2 and said.err.startswith(f"error: {source}no store is known"), said.err
    assert "day" not in said.err


def test_a_misspelt_name_is_no_good_news(redrive: Redrive) -> None:
    enqueued(redrive)
    listed = redrive("list", "--kind", "SENT")
    assert listed.code == 2 and "nothing is known of a kind 'SENT'" in listed.err and "SEND" in listed.err
    assert redrive("list", "--kind", "SEND", "--state", "failed").out == "no tasks match\n"
    assert redrive("pause", "--queue", "default", "--by", "ann").out == "queue default paused\n"
    found = redrive("audit", "--action", "QUEUE_PAUSED", "--actor", "ann").out
    assert found == "no such audit rows; the latest with the same filters are: QUEUE_PAUSE\n"
    assert redrive("pause", "--group", "nobodys").out == "group nobodys paused; it has no tasks so far\n"


def test_a_queue_that_nobody_has_heard_of_is_pointed_out(redrive: Redrive) -> None:
    enqueued(redrive)
    said = redrive("enqueue", "SEND", "--queue", "defalt")
    assert said.code == 0 and "nothing is known of a queue 'defalt' so far (known queues: " in said.err
    assert redrive("enqueue", "SEND", "--queue", "default").err == ""


def test_everything_that_will_be_asked_for_is_said_at_once(redrive: Redrive, here: Path) -> None:
    (here / "day.py").write_text(
        "from redrive import App, Context, Fail\napp = App()\n"
        "@app.task('BAD')\nasync def bad(ctx: Context) -> None: raise Fail('NO', 'no')\n"
    )
    assert redrive("enqueue", "BAD", "--app", "day:app").code == 0
    assert redrive("work", "--app", "day:app", "--stop-when-empty").code == 0
    refused = redrive("flush")
    assert refused.code == 2 and "say --yes --fixed TEXT --idempotent (or --not-idempotent)" in refused.err
    answered = redrive("flush", "--fixed", "it", "--idempotent")
    assert "say --yes, or look first" in answered.err


def test_a_limit_for_a_kind_that_nobody_handles_is_pointed_out(
    redrive: Redrive, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "day.py").write_text(
        "from redrive import App, Context\napp = App()\n@app.task('SLOW')\nasync def slow(ctx: Context) -> None: ...\n"
    )
    monkeypatch.setenv("TASK_WORKER_KIND_CONCURRENCY", '{"SLOWW": 1, "SLOW": 2}')
    said = redrive("work", "--app", "day:app", "--stop-when-empty").err
    assert "TASK_WORKER_KIND_CONCURRENCY limits SLOWW, which no handler here has: did you mean SLOW?" in said
    assert said.count("limits SLOW") == 1


def test_django_that_is_not_set_up(here: Path) -> None:
    (here / "day.py").write_text("from django.contrib.auth.models import User\n")
    # In a process of its own: other tests set Django up in this one.
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    command = [sys.executable, "-m", "redrive.cli", "work", "--app", "day:app"]
    said = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 1 and "calls django.setup() and imports the App from day then" in said.stderr, said.stderr


def test_a_payload_that_its_handler_takes_no_more(redrive: Redrive, here: Path) -> None:
    task_id = enqueued(redrive)
    (here / "day.py").write_text(
        "from redrive import App, Context\napp = App()\n"
        "@app.task('SEND')\nasync def send(ctx: Context, tenant: str) -> None: ...\n"
    )
    assert redrive("work", "--app", "day:app", "--stop-when-empty").code == 0
    assert "give a new parameter a default" in redrive("why", task_id).out


def test_too_little_of_an_id_is_said(redrive: Redrive) -> None:
    task_id = enqueued(redrive)
    said = redrive("why", task_id[:7])
    assert said.code == 2 and "too little of an id" in said.err and "at least 8 characters" in said.err


def test_the_id_of_a_batch_leads_to_the_batch(redrive: Redrive, here: Path) -> None:
    (here / "items.jsonl").write_text('{"kind": "SEND", "payload": {}}\n')
    batch = redrive("batch", "create", "items.jsonl", "--json").json["id"]
    for command in ("show", "why"):
        said = redrive(command, batch)
        assert said.code == 1 and f"{batch} is a batch, and no task" in said.err
        assert f"→ redrive batch show {batch}" in said.err


def test_why_says_its_command_on_a_line_of_its_own(redrive: Redrive) -> None:
    task_id = enqueued(redrive)
    redrive("pause", "--kind", "SEND", "--by", "ann")
    assert "\n→ redrive resume --kind SEND\n" in redrive("why", task_id).out


def test_a_schedule_that_nobody_fires_is_named_by_doctor(redrive: Redrive, here: Path) -> None:
    (here / "day.py").write_text(
        "from redrive import App, Context\napp = App(name='day')\n"
        "@app.task('IMPORT')\nasync def run(ctx: Context) -> None: ...\n"
        "app.periodic('IMPORT', cron='0 6 * * *', name='prices')\n"
    )
    assert redrive("work", "--app", "day:app", "--stop-when-empty").code == 0
    assert "prices" not in redrive("doctor").out
    with closing(sqlite3.connect(here / "redrive.db")) as connection, connection:
        connection.execute("update redrive_schedule set next_at = (unixepoch() - 300) * 1000000")
    said = redrive("doctor").out
    assert "schedule prices (IMPORT) is overdue for 5 min: no worker fires it" in said
    assert "then it runs once for all that it missed" in said
    redrive("pause", "--schedule", "prices", "--by", "ann")
    assert "is overdue" not in redrive("doctor").out
