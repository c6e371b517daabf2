"""Cuts floods of log lines: what strangers can cause as often as they like is said a few times, then counted.

Only loggers of the HTTP server and of asyncio are meant (broken requests, failing accepts). What an application logs
is its own business and is never left out.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

LIMITED_LOGGERS = ("uvicorn", "asyncio", "redrive.api")
LINES_ALLOWED, LINES_WINDOW_S = 10, 10.0
MOST_SORTS_COUNTED = 1000


@dataclass(slots=True)
class _Seen:
    since: float
    count: int = 0


class FloodFilter(logging.Filter):
    """Lets ``allowed`` lines of each sort through in a window; the first one of the next window says how many more
    there were. A sort is a logger and the beginning of its message, before values are put in."""

    def __init__(
        self, allowed: int = LINES_ALLOWED, window: float = LINES_WINDOW_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._allowed, self._window, self._clock = allowed, window, clock
        self._seen: OrderedDict[tuple[str, str], _Seen] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        if not _is_meant(record.name):
            return True
        now, key = self._clock(), (record.name, str(record.msg)[:60])
        seen = self._seen.setdefault(key, _Seen(now))
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


def _is_meant(name: str) -> bool:
    return any(name == meant or name.startswith(f"{meant}.") for meant in LIMITED_LOGGERS)
