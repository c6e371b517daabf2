"""Writes structured logs: one JSON object a line, or readable text on a terminal.

Task events are written by hand-made lines, many at once: the standard library's logging costs more than running a
small task does. Everything else (the application's own records, the rest of redrive) goes through ``logging``
with the same format to the same stream.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO
from uuid import UUID

from redrive.kernel.machine import ExpiredLease
from redrive.kernel.task import Claimed
from redrive.observe.current import TaskFields

_quote = json.encoder.encode_basestring_ascii
# What a record's own attributes may not replace: the standard ones, and the fields that every line begins with.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_TAKEN = _STANDARD | {"at", "level", "event", "logger", "stack"}
_encode = json.JSONEncoder(separators=(",", ":"), default=str, allow_nan=False).encode
DROP_LINES_FOR_S = 5.0
LEVELS = ("info", "warning", "error")
# Broken requests and failing accepts, which strangers can cause as often as they like: said a few times, then counted.
LIMITED_LOGGERS = ("uvicorn", "asyncio", "redrive.api")
LINES_ALLOWED, LINES_WINDOW_S = 10, 10.0
MOST_SORTS_COUNTED = 1000


def timestamp(seconds: float | None = None) -> str:
    at = datetime.fromtimestamp(time.time() if seconds is None else seconds, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TaskLog:
    """Writes lines about tasks: gathered while a cycle is handled, written together by ``flush``.

    ``level``: the least that is written. ``sample``: of so many tasks one has its lines about what is usual, that it
    was claimed and completed; what went wrong is written of all.
    """

    def __init__(
        self, stream: TextIO | None = None, style: str = "json", *, level: str = "info", sample: int = 1
    ) -> None:
        self._stream = stream
        self._style = style
        self._least = LEVELS.index(level)
        self._sample = sample
        self._worker = "null"
        self._lines: list[str] = []
        self._at = ""
        self._deaf_until = 0.0

    def name(self, worker_id: str) -> None:
        """Sets the worker whose lines these are."""
        self._worker = _quote(worker_id)

    def begin(self) -> None:
        """Takes the time once for all lines until the next call."""
        if self._style != "off":
            self._at = timestamp()

    def label(self, task: Claimed | ExpiredLease) -> str:
        """Returns how lines name a task: made once, for all of its lines."""
        if self._style == "json":
            trace = "null" if task.trace_id is None else _quote(task.trace_id)
            return (
                f'"task_id":"{task.id}","kind":{_quote(task.kind)},"queue":{_quote(task.queue)},'
                f'"attempt":{task.attempt},"trace_id":{trace},"worker_id":{self._worker}'
            )
        return f"{task.kind} {task.id} attempt {task.attempt}/{task.max_attempts}" if self._style == "text" else ""

    def tells(self, task_id: UUID) -> bool:
        """Returns whether the usual lines of this task are written: all of them or none, in every process the same."""
        return self._sample == 1 or task_id.int % self._sample == 0

    def task(self, event: str, label: str, ms: float | None = None, level: str = "info", **extra: Any) -> None:
        """Adds a line about a task."""
        if self._least and LEVELS.index(level) < self._least:
            return
        if self._style == "json":
            tail = "".join([f',"{name}":{_value(value)}' for name, value in extra.items()]) if extra else ""
            duration = "" if ms is None else f',"duration_ms":{ms:.3f}'
            self._lines.append(f'{{"at":"{self._at}","level":"{level}","event":"{event}",{label}{duration}{tail}}}\n')
        elif self._style == "text":
            self._lines.append(self._text(event, label, ms, level, extra))

    def worker(self, event: str, message: str, level: str = "info", **extra: Any) -> None:
        """Writes a line about the worker itself, at once."""
        if LEVELS.index(level) < self._least:
            return
        self.begin()
        if self._style == "json":
            fields = {"at": self._at, "level": level, "event": event, "message": message}
            self._lines.append(_encode({**fields, "worker_id": json.loads(self._worker), **extra}) + "\n")
        elif self._style == "text":
            self._lines.append(self._text(event, message, None, level, {}))
        self.flush()

    def flush(self) -> None:
        """Writes the lines that were gathered."""
        if self._lines:
            stream = self._stream or sys.stderr
            text, self._lines = "".join(self._lines), []
            if self._deaf_until and time.monotonic() < self._deaf_until:
                return
            try:
                stream.write(text)
                stream.flush()
            except (OSError, ValueError):
                # A full disk or closed pipe under the log must not stop the work: these lines are lost, and so are
                # those of the next seconds.
                self._deaf_until = time.monotonic() + DROP_LINES_FOR_S

    def _text(self, event: str, label: str, ms: float | None, level: str, extra: dict[str, Any]) -> str:
        duration = "" if ms is None else f" {ms:.1f} ms"
        mark = {"info": " ", "warning": "!", "error": "✗"}.get(level, " ")
        tail = "".join(f"  {name}={_readable(value)}" for name, value in extra.items() if value is not None)
        return f"{self._at[11:23]} {mark} {event:<15} {_readable(label)}{duration}{tail}\n"


def _value(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    return _quote(str(value))


def _readable(value: Any) -> str:
    """Returns one line without control characters: messages of failures are not trusted with the terminal."""
    text = " ".join(str(value).split())
    return "".join(c if c.isprintable() else "?" for c in text)[:200]


class JsonFormatter(logging.Formatter):
    """Formats standard log records in the same shape as task events."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "at": timestamp(record.created),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "log"),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {k: v for k, v in vars(record).items() if k not in _TAKEN}
        if stack := _stack(self, record):
            fields["stack"] = stack
        try:
            return _encode(fields)
        except (TypeError, ValueError, RecursionError):  # an extra that JSON cannot say: a NaN, a cycle, odd keys
            return _encode({name: _sayable(value) for name, value in fields.items()})


def _sayable(value: Any) -> Any:
    try:
        _encode(value)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
    return value


class TextFormatter(logging.Formatter):
    """Formats a line for a person. What it says may come from anywhere, so it has no power over the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        mark = "✗" if record.levelno >= logging.ERROR else "!" if record.levelno >= logging.WARNING else " "
        event = str(getattr(record, "event", record.name))
        text = f"{timestamp(record.created)[11:23]} {mark} {event:<15} {record.getMessage()}{_task_of(record)}"
        stack = _stack(self, record)
        return _harmless(f"{text}\n{stack}" if stack else text)


def _stack(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    """Returns the stack of a record; one that was made in another process has it as text."""
    return formatter.formatException(record.exc_info) if record.exc_info else record.exc_text


def _task_of(record: logging.LogRecord) -> str:
    """Returns which task a record of the application's own was made in."""
    fields = vars(record)
    if "event" in fields or "kind" not in fields:
        return ""
    which = fields["task_id"] if "task_id" in fields else f"{fields.get('tasks')} tasks"
    return f"  ({fields['kind']} {which})"


def _harmless(text: str) -> str:
    """Returns the same lines, without control characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


@dataclass(slots=True)
class _Window:
    since: float
    count: int = 0


class FloodFilter(logging.Filter):
    """Cuts floods: lets ``allowed`` lines of each sort through in a window; the first one of the next window says how
    many more there were. A sort is a logger and the beginning of its message, before values are put in. Only loggers of
    the HTTP server and of asyncio are meant: what an application logs is its own business and never left out."""

    def __init__(
        self, allowed: int = LINES_ALLOWED, window: float = LINES_WINDOW_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._allowed, self._window, self._clock = allowed, window, clock
        self._seen: OrderedDict[tuple[str, str], _Window] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        if not _is_limited(record.name):
            return True
        now, key = self._clock(), (record.name, str(record.msg)[:60])
        seen = self._seen.setdefault(key, _Window(now))
        self._seen.move_to_end(key)
        if len(self._seen) > MOST_SORTS_COUNTED:
            self._seen.popitem(last=False)
        if now - seen.since >= self._window:
            self._tell(record, seen.count - self._allowed)
            seen.since, seen.count = now, 0
        seen.count += 1
        return seen.count <= self._allowed

    def _tell(self, record: logging.LogRecord, left_out: int) -> None:
        if left_out > 0:
            record.msg = f"{record.getMessage()} ({left_out} more like it were left out)"
            record.args = None
            record.left_out = left_out


def _is_limited(name: str) -> bool:
    return any(name == limited or name.startswith(f"{limited}.") for limited in LIMITED_LOGGERS)


def choose_style(wanted: str, stream: TextIO | None = None) -> str:
    """Returns the style: ``auto`` is text for a person at a terminal and JSON for everything else."""
    if wanted != "auto":
        return wanted
    return "text" if (stream or sys.stderr).isatty() else "json"


def configure(style: str, stream: TextIO | None = None, level: str = "info") -> None:
    """Sends standard logging to the stream in this style. For the command line; a library leaves logging alone."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    if style == "off":
        root.addHandler(logging.NullHandler())
        return
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    handler.addFilter(TaskFields())
    handler.addFilter(FloodFilter())
    root.addHandler(handler)
    root.setLevel(level.upper())
    # One line for each request to a provider or a receiver says nothing that the task does not, and shows addresses.
    if root.level > logging.DEBUG:
        logging.getLogger("httpx").setLevel(logging.WARNING)
