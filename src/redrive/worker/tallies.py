"""What a worker counts for the time series, and the sheets on which it goes to the store with the heartbeat."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterable

from redrive.kernel.series import MOST_SERIES, Key, Tally, TallySheet, TallyTable, write

SHEET_EVERY = 10.0  # seconds; minutes are the finest that anybody looks at


class Tallies(TallyTable):
    """Counts by queue and kind since the last sheet. A sheet is kept until the store has said that it has it, and sent
    again under the same id; what is counted meanwhile goes on the next one. There is one sheet at most, of so many
    kinds at most, however long the store is away.

    ``expected`` are those that this worker may count: they have series of their own before others, the first by name,
    which are the same ones in every process of an application."""

    def __init__(self, expected: Iterable[Key] = ()) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._before = TallyTable({key: Tally() for key in sorted(set(expected))[:MOST_SERIES]})
        self._sheet: TallySheet | None = None
        self._next = 0.0
        self._last: tuple[str, str, Tally] = ("", "", Tally())

    def of(self, queue: str, kind: str) -> Tally:
        """Returns the tally of a kind in a queue. Tasks of one kind come in a row: that of the last one is at hand."""
        last_queue, last_kind, tally = self._last
        if kind != last_kind or queue != last_queue:
            tally = self[queue, kind]
            self._last = (queue, kind, tally)
        return tally

    def sheet(self, *, now: bool = False) -> TallySheet | None:
        """Returns what is to be sent with this heartbeat; None when there is nothing, or something was sent a moment
        ago. ``now``: this may be the last one."""
        if self._sheet is None and self and (now or time.monotonic() >= self._next):
            self._sheet = TallySheet(secrets.token_hex(8), write(self))
            with self._lock:
                _merge(self._before, self)
                self.clear()
            self._last = ("", "", Tally())
        return self._sheet

    def sent(self, sheet: TallySheet | None) -> None:
        """The store has it, or does not want it."""
        if sheet is not None and sheet is self._sheet:
            self._sheet = None
            self._next = time.monotonic() + SHEET_EVERY

    def since_start(self) -> TallyTable:
        """Returns everything that was counted since this worker was started, from any thread. What is counted at this
        moment may be left out, what was seen once never is."""
        found = TallyTable()
        with self._lock:
            _merge(found, self._before)
            _merge(found, self)
        return found


def _merge(mine: TallyTable, more: TallyTable) -> None:
    for key, tally in list(more.items()):  # at once: it may be counted in meanwhile
        mine[key].merge(tally)
