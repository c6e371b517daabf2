"""Log lines that are not about tasks: one compact JSON object each, or text that a terminal can be trusted with."""

from __future__ import annotations

import errno
import io
import json
import logging
import sys
from typing import Any

import pytest

from redrive.observe.logs import JsonFormatter, TaskLog, TextFormatter


def record(message: str = "hello", **extra: Any) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "app", "levelname": "INFO", "levelno": 20, "msg": message, **extra})


def test_json_is_compact_and_begins_like_every_other_line() -> None:
    line = JsonFormatter().format(record(event="mail.sent", task_id="t-1"))
    found = json.loads(line)
    assert line == json.dumps(found, separators=(",", ":"))
    assert list(found) == ["at", "level", "event", "logger", "message", "task_id"]
    assert (found["level"], found["event"], found["task_id"]) == ("info", "mail.sent", "t-1")


def test_an_extra_cannot_replace_what_a_line_begins_with() -> None:
    found = json.loads(JsonFormatter().format(record(at="never", level="fatal", logger="other", note="kept")))
    assert (found["level"], found["logger"], found["note"]) == ("info", "app", "kept")
    assert found["at"].endswith("Z")


@pytest.mark.parametrize("odd", [float("nan"), {("a", "b"): 1}, {"deep": {"x": float("inf")}}])
def test_an_extra_that_json_cannot_say_does_not_lose_the_line(odd: object) -> None:
    line = JsonFormatter().format(record(odd=odd, fine=1))
    found = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (found["odd"], found["fine"], found["message"]) == (repr(odd), 1, "hello")


def test_text_has_no_power_over_the_terminal() -> None:
    try:
        raise ValueError("\x1b]0;owned\x07")
    except ValueError:
        line = TextFormatter().format(record("a\x1b[2Jb\x9b31m\r\u202ec\td", exc_info=sys.exc_info()))
    assert all(c.isprintable() or c in "\n\t" for c in line)
    assert "a?[2Jb?31m??c\td" in line
    assert "ValueError: ?]0;owned?" in line, "stacks too"


class Stream(io.StringIO):
    """A log on a disk that fills up and is emptied again."""

    full = False

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_a_log_that_could_not_be_written_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("redrive.observe.logs.time.monotonic", lambda: now)
    stream = Stream()
    log = TaskLog(stream)
    for second, full in ((100, False), (101, True), (102, False), (107, False)):
        now, stream.full = float(second), full
        log.begin()
        log.task(f"task.at_{second}", '"task_id":"t"')
        log.flush()
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["task.at_100", "task.at_107"]
