"""Hands the counts of worker processes over to their supervisor, which serves them all on one port.

Each child writes lines into a pipe of its own: what has changed since the last line, as it is now. So a child that is
killed has lost the counts of a second at most, and what it had counted before stays in the sum. prometheus-client's own
mode for several processes knows no collectors, and leaves a file for each process that ever was.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from redrive.observe import metrics
from redrive.observe.metrics import Metric, by_name
from redrive.observe.samples import Samples, add, as_json, changed, from_json, put

logger = logging.getLogger("redrive.supervisor")
PIPE_VARIABLE = "REDRIVE_METRICS_PIPE"  # the descriptor that a child writes to
EVERY_S = 1.0
SILENT_AFTER_S = 15.0
LAST_WORDS_S = 2.0
LONGEST_LINE_BYTES = 1 << 26


class Reach(NamedTuple):
    """What workers reach of their store: when it last answered (0: never), and whether hints arrive; None where they
    cannot."""

    contact: float = 0.0
    listening: bool | None = None


class Report(NamedTuple):
    """What a process says: its samples, what /healthz says, why it is not ready, what it reaches."""

    samples: Samples
    health: dict[str, Any]
    reasons: list[str]
    reach: Reach = Reach()


class Sender:
    """Tells the supervisor once a second, from a thread: a supervisor that does not read holds nobody up."""

    def __init__(self, pipe: int, look: Callable[[], Report]) -> None:
        self._pipe = pipe
        self._look = look
        self._told: Samples = {}
        self._over = threading.Event()
        os.set_inheritable(pipe, False)  # or a handler's own process would keep it open
        self._thread = threading.Thread(target=self._main, name="redrive-hand-over", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Tells everything once more."""
        self._over.set()
        self._thread.join(LAST_WORDS_S)

    def _main(self) -> None:
        with contextlib.suppress(OSError), os.fdopen(self._pipe, "wb", buffering=0) as pipe:  # the supervisor is gone
            ends = False
            while not ends:
                ends = self._over.wait(EVERY_S)
                _write(pipe.fileno(), self._line())

    def _line(self) -> bytes:
        told = self._look()
        news = changed(told.samples, self._told)
        self._told = told.samples
        document = {"samples": as_json(news), "health": told.health, "reasons": told.reasons, "reach": told.reach}
        return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _write(pipe: int, line: bytes) -> None:
    while line:
        line = line[os.write(pipe, line) :]


class Slot:
    """One worker process of a supervisor, and those that were there before it. The last of them may still finish what
    it runs. Written on the supervisor's loop, read by the thread that serves the port."""

    def __init__(self, name: str, table: Mapping[str, Metric]) -> None:
        self.name = name
        self.health: dict[str, Any] = {}
        self.reasons = ["it is not started yet"]
        self.over = False
        self.contact = 0.0  # of whoever was there; it stays when they are gone
        self.listening: bool | None = None
        self.restarts = 0
        self._table = table
        self._lock = threading.Lock()
        self._ended: Samples = {}
        # By the number of the process in this place: the last is the one that is to be there.
        self._told: dict[int, Samples] = {}
        self._last = 0
        self._heard_at = 0.0

    def began(self, *, relieves: bool = False) -> int:
        """Returns the number of a process that has begun. ``relieves``: the one before it is well, and goes for it."""
        if self._last and not relieves:
            self.restarts += 1
        self._last += 1
        with self._lock:
            self._told[self._last] = {}
        self._heard_at = time.monotonic()
        self.reasons = ["it has not said anything yet"]
        return self._last

    def hear(self, number: int, line: bytes) -> None:
        """Takes in what a process says."""
        told = json.loads(line)
        news = from_json(told["samples"], self._bounds_of)
        with self._lock:
            for name, values in news.items():
                self._told[number].setdefault(name, {}).update(values)
        if number == self._last:
            self.health, self.reasons = told["health"], told["reasons"]
            contact, self.listening = told["reach"]
            self.contact = max(contact, self.contact)
            self._heard_at = time.monotonic()

    def ended(self, number: int, *, for_good: bool = False) -> None:
        """Keeps what adds up; how it was is nothing any more. ``for_good``: it was to end (somebody drained it), and
        nobody waits for it."""
        with self._lock:
            add(self._ended, self._told.pop(number), self._adds_up)
        if number == self._last:
            self.over = for_good
            self.health, self.reasons, self.listening = {}, ["it has ended"], None

    def samples(self) -> Samples:
        found: Samples = {}
        with self._lock:
            add(found, self._ended)
            for number, told in self._told.items():
                add(found, told, self._adds_up if number != self._last else lambda _: True)
        put(found, metrics.RESTARTS.name, float(self.restarts))
        return found

    def problems(self) -> list[str]:
        silent = time.monotonic() - self._heard_at
        if not self.reasons and silent > SILENT_AFTER_S:
            return [f"it has said nothing for {silent:.0f} s"]
        return self.reasons

    def _bounds_of(self, name: str) -> tuple[float, ...] | None:
        metric = self._table.get(name)
        return None if metric is None else metric.bounds

    def _adds_up(self, name: str) -> bool:
        return self._table[name].adds_up


class Pipe:
    """The supervisor's end of one child's pipe, from before it is started until after it has ended."""

    def __init__(self, slot: Slot, *, relieves: bool = False) -> None:
        self._slot = slot
        self._relieves = relieves
        self._number = 0
        self._read, self._written = os.pipe()
        self._listening: asyncio.Task[None] | None = None

    @property
    def passed(self) -> tuple[int, ...]:
        return (self._written,)

    @property
    def environment(self) -> dict[str, str]:
        return {PIPE_VARIABLE: str(self._written)}

    def begin(self) -> None:
        """The child has its end by now: this one is closed, so that its end can be seen."""
        os.close(self._written)
        self._number = self._slot.began(relieves=self._relieves)
        self._listening = asyncio.create_task(self._listen(), name="redrive-hand-over")

    async def end(self, *, for_good: bool = False) -> None:
        """Takes in what the child said last. ``for_good``: none is started in its place."""
        if self._listening is None:  # it was never started
            os.close(self._read)
            os.close(self._written)
            return
        await asyncio.wait([self._listening], timeout=LAST_WORDS_S)
        self._listening.cancel()  # somebody whom it has started keeps the pipe open
        self._slot.ended(self._number, for_good=for_good)

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LONGEST_LINE_BYTES)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._read, "rb", buffering=0)
        )
        try:
            while (line := await reader.readline()).endswith(b"\n"):
                self._slot.hear(self._number, line)
        except (ValueError, KeyError, TypeError, OSError):
            logger.exception("a worker process cannot be understood", extra={"event": "supervisor.metrics"})
        finally:
            transport.close()


class HandOver:
    """The pipes of all children, and what came through them."""

    def __init__(self, name: str, processes: int, table: Sequence[Metric]) -> None:
        known = by_name(table)
        self.slots = [Slot(f"{name}-{number}", known) for number in range(1, processes + 1)]

    def pipe(self, number: int, *, relieves: bool = False) -> Pipe:
        return Pipe(self.slots[number], relieves=relieves)

    def processes(self) -> dict[str, Samples]:
        """Returns the samples of each process, with those of its forerunners."""
        return {slot.name: slot.samples() for slot in self.slots}

    def health(self) -> list[dict[str, Any]]:
        return [slot.health for slot in self.slots if slot.health]

    def reach(self) -> Reach:
        """Returns what all of them reach: the latest contact of any, hints where none goes without."""
        heard = [slot.listening for slot in self.slots if slot.listening is not None]
        return Reach(max(slot.contact for slot in self.slots), all(heard) if heard else None)

    def problems(self) -> list[str]:
        """Returns what is wrong with those that are to be there; when all were to end, that."""
        there = [slot for slot in self.slots if not slot.over] or self.slots
        return [f"{slot.name}: {reason}" for slot in there for reason in slot.problems()]
