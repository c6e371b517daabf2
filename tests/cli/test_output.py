"""What comes from tasks stays data, in a terminal and in a pipe."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
import subprocess
import sys
import termios
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from redrive.cli.support.output import clean, relative
from redrive.kernel.ports.store import WorkerRow
from redrive.ops.workers import standing
from redrive.stores import shown_url

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[31m[bold red]:boom: \x9b31m \u202egnp.exe\u202c \x00\x08 [/]"
APP = """
from redrive import App, Context
app = App()
HOSTILE = {hostile!r}

@app.task("EVIL", max_attempts=1)
async def evil(ctx: Context, note: str) -> None:
    raise RuntimeError(HOSTILE)
"""


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x07", "link"),
        ("\x1b]0;never ended", ""),
        ("a\x9b31mb", "ab"),
        ("\x1bPdevice\x1b\\x", "x"),
        ("one\ntwo\ttab", "one two tab"),
        ("\u202eback", "\ufffdback"),
        ("\x07\x00", "\ufffd\ufffd"),
        ("naïve 漢字 🙂", "naïve 漢字 🙂"),
    ],
)
def test_clean(given: str, wanted: str) -> None:
    assert clean(given) == wanted


def test_lines_are_kept_where_they_are_wanted() -> None:
    assert clean("a\n\x1b[1mb\r", lines=True) == "a\nb "


def test_times_are_said_with_their_direction() -> None:
    now = datetime.now(UTC)
    assert relative(now - timedelta(seconds=40.5)) == "40s ago"
    assert relative(now + timedelta(hours=3, seconds=5)) == "in 3h"
    assert relative(None) == ""


def test_passwords_are_not_shown() -> None:
    assert shown_url("postgresql://ann:secret@db:5432/x") == "postgresql://ann:…@db:5432/x"
    assert shown_url("sqlite:///redrive.db") == "sqlite:///redrive.db"
    assert shown_url("postgresql://ann@db/x?sslmode=require") == "postgresql://ann@db/x?sslmode=require"
    masked = shown_url("postgresql://db/x?user=ann&password=s3cret&sslpassword=s3cret&passfile=/s3cret")
    assert masked == "postgresql://db/x?user=ann&password=…&sslpassword=…&passfile=…"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cret@one:5432,two:5433/x",
        "postgresql://ann:s3c/s3cret@db/x",
        "postgresql://ann:s3c?s3cret@db/x",
        "postgresql://ann:s3c#s3cret@db/x",
        "postgresql://ann:s3c@s3cret@db/x",
        "postgresql://ann:s3cret@[db/x",
        "postgresql://db/x?password=s3cret&oops",
        "postgresql://:s3cret@db/x",
        "host=db password=s3cret",
        "postgresql:ann:s3cret@db",
    ],
)
def test_odd_urls_do_not_show_passwords_either(url: str) -> None:
    assert "s3cret" not in shown_url(url)


def test_a_login_in_place_of_something_else_is_not_quoted(redrive) -> None:
    url = "postgresql://ann:s3cret@db/x"
    redrive("migrate")
    for command in (["work", "--connection", url], ["show", url], ["work", "--group", url]):
        for options in ([], ["--json"]):
            said = redrive(*command, *options)
            assert said.code == 2 and "s3cret" not in said.err, said.err


@pytest.mark.parametrize(
    ("stopping", "running", "seen", "told"),
    [
        (False, 0, 1, "alive"),
        (False, 2, 12, "silent"),
        (False, 2, 60, "gone"),
        (True, 2, 1, "stopping"),
        (True, 0, 1, "gone"),
        (True, 2, 60, "gone"),
    ],
)
def test_a_worker_that_finishes_has_not_stopped_yet(stopping: bool, running: int, seen: int, told: str) -> None:
    now = datetime.now(UTC)
    row = WorkerRow("w", "h", 1, ("q",), 5, running, "0", now, now - timedelta(seconds=seen), stopping)
    assert standing(row, now) == told


def test_hostile_failures_cannot_reach_the_terminal(redrive, here: Path) -> None:
    (here / "evil.py").write_text(APP.format(hostile=HOSTILE))
    payload = json.dumps({"note": HOSTILE.replace("\x00", "")})
    made = redrive("enqueue", "EVIL", payload, "--app", "evil", "--json").json["id"]
    assert redrive("work", "--app", "evil", "--stop-when-empty").code == 0
    for command in (["list"], ["show", made, "--stack"], ["stats"]):
        out = redrive(*command).out
        assert "[bold red]:boom:" in out, "markup is shown as it is"
        assert not any((ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0 or ord(c) in (0x202E, 0x202C) for c in out)
        document = redrive(*command, "--json")
        assert document.out.isascii() and document.json


def test_pipes_get_whole_ids_and_no_padding(redrive) -> None:
    made = redrive("enqueue", "K" * 100, "--queue", "q" * 100, "--json").json["id"]
    table = redrive("list").out
    assert "\x1b" not in table
    [header, row] = table.splitlines()
    assert made in row and "K" * 100 in row and "q" * 100 in row
    assert header.split() == ["id", "state", "kind", "queue", "attempts", "age", "what"]
    assert all(line == line.rstrip() for line in table.splitlines())


def test_a_narrow_terminal_gets_the_rest_of_a_row_below_it(redrive) -> None:
    made = redrive("enqueue", "--app", "redrive_kit.examples.shots:app", "VIDEO_GEN", "--json").json["id"]
    redrive("work", "--app", "redrive_kit.examples.shots:app", "--stop-when-empty")
    lines = on_a_terminal(80, "failed")
    assert all(len(line) <= 80 for line in lines), lines
    [row] = [nth for nth, line in enumerate(lines) if line.startswith(made)]
    assert lines[row + 1] == "    TASK_PAYLOAD_UNSUPPORTED  no handler is registered for kind VIDEO_GEN"
    wide = on_a_terminal(200, "failed")
    assert any(line.startswith(made) and line.endswith("for kind VIDEO_GEN") for line in wide), wide


@pytest.mark.parametrize("columns", [80, 120])
def test_settings_fit_a_terminal(columns: int, here: Path) -> None:
    (here / "redrive.toml").write_text(
        '[connections.main]\nurl = "postgresql://u:secret@h/d"\n[connections.other]\nurl = "sqlite:///o.db"\n'
        "[workers.reports]\nconnection = 'other'\nqueues = ['a', 'b']\nmax_time = 3600\nconcurrency = 20\ntries = 3\n"
    )
    lines = on_a_terminal(columns, "settings")
    assert all(len(line) <= columns for line in lines), [line for line in lines if len(line) > columns]
    told = {line.split()[0]: line for line in lines if line[:1].isupper()}
    assert told["REDRIVE_CONNECTIONS"].endswith("(set, not shown)") and "secret" not in "".join(lines)
    for name in ("REDRIVE_ALERT_EMAIL", "REDRIVE_ALERT_WEBHOOK", "REDRIVE_METRICS_TOKEN"):
        assert told[name].split() == [name, "default"], "it is not set"
    assert told["REDRIVE_ALERT_SMTP"].split() == ["REDRIVE_ALERT_SMTP", "default", "smtp://localhost"]
    assert "{'reports':" in told["REDRIVE_WORKERS"]


def on_a_terminal(columns: int, *arguments: str) -> list[str]:
    """What the command writes there, without colours."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    command = [sys.executable, "-m", "redrive.cli", *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        text = b""
        with contextlib.suppress(OSError):  # the other end is closed: that is all
            while piece := os.read(ours, 4096):
                text += piece
        assert process.wait() == 0
    os.close(ours)
    return clean(text.decode().replace("\r", ""), lines=True).splitlines()
