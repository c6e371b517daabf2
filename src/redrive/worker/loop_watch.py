"""Notices when something holds the worker's event loop, and what: nothing else runs and no timeout comes meanwhile.

A thread asks the loop to answer twice a second. Where no answer comes, it looks at what the loop's thread is doing. So
a handler costs nothing more while all goes well.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import FrameType
from typing import Any

from redrive.kernel.handler_notes import LoopBlock
from redrive.observe.current import CURRENT
from redrive.worker.run import Run
from redrive.worker.runner import Runner

logger = logging.getLogger("redrive.worker")
ASK_EVERY_S = 0.5
HELD_AFTER_S = 1.0
STILL_AFTER_S = 10.0
HINT = 'write it as def, or with isolation="process"'
_IDLE = ("selectors.py", "/asyncio/")
_STANDARD = sysconfig.get_paths()["stdlib"]


class LoopWatch:
    """Watches the loop that it is started on; calls ``on_block`` there for each time that a handler has held it, and
    ``on_lag`` in its own thread with each time that the loop took to answer."""

    def __init__(self, worker_id: str, on_block: Callable[[LoopBlock], None], on_lag: Callable[[float], None]) -> None:
        self._worker_id = worker_id
        self._on_block = on_block
        self._on_lag = on_lag
        self._stopped = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        self._loop, ident = asyncio.get_running_loop(), threading.get_ident()
        threading.Thread(target=self._watch, args=(self._loop, ident), name="redrive-loop-watch", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, ident: int) -> None:
        while not self._stopped.wait(ASK_EVERY_S):
            answered = threading.Event()
            asked = time.monotonic()
            try:
                loop.call_soon_threadsafe(answered.set)
                if not answered.wait(HELD_AFTER_S) and (holder := _holder(loop, ident)) is not None:
                    self._follow(loop, answered, asked, holder)
                if answered.is_set():
                    self._on_lag(time.monotonic() - asked)
            except RuntimeError:  # the loop is closed
                return

    def _follow(
        self, loop: asyncio.AbstractEventLoop, answered: threading.Event, asked: float, holder: _Holder
    ) -> None:
        """Waits until the loop is free again, and says how long it was held and by what; also before that, where it
        takes long."""
        if not answered.wait(STILL_AFTER_S - HELD_AFTER_S):
            self._say(f"{holder.label} has held the event loop for {STILL_AFTER_S:g} s, and still does", holder, None)
        while not answered.wait(1.0):
            if self._stopped.is_set() or loop.is_closed():
                return
        seconds = time.monotonic() - asked
        late = holder.passed(time.monotonic())
        past = "" if late is None else f", past its timeout of {late:g} s"
        self._say(f"{holder.label} held the event loop for {seconds:.1f} s{past}", holder, seconds)
        if holder.task_id is not None:
            at = datetime.now(UTC).isoformat()
            block = LoopBlock(holder.task_id, holder.kind, self._worker_id, at, round(seconds, 1), holder.where, late)
            loop.call_soon_threadsafe(self._on_block, block)

    def _say(self, text: str, holder: _Holder, seconds: float | None) -> None:
        more = {"task_id": holder.task_id, "kind": holder.kind} if holder.task_id is not None else {}
        fields: dict[str, Any] = {
            "event": "worker.loop_blocked",
            "worker_id": self._worker_id,
            "where": holder.where,
            **more,
        }
        if seconds is not None:
            fields["seconds"] = round(seconds, 1)
        logger.warning("%s: nothing else ran meanwhile, and no timeout came → %s", text, HINT, extra=fields)


class _Holder:
    """What holds the loop: the place in the code, and the run that it belongs to, if it is one of this worker."""

    def __init__(self, where: str, task_id: str | None = None, kind: str = "", run: Run | None = None) -> None:
        self.where = where
        self.task_id = task_id
        self.kind = kind
        self._run = run

    @property
    def label(self) -> str:
        if self.task_id is None:
            return f"code that no handler has called itself ({self.where})"
        return f"{self.kind} {self.task_id} ({self.where})"

    def passed(self, now: float) -> float | None:
        """Returns the timeout of the task if it is over."""
        run = self._run
        if run is None or run.timeout is None or now - run.started <= run.timeout:
            return None
        return run.timeout


def _holder(loop: asyncio.AbstractEventLoop, ident: int) -> _Holder | None:
    """Returns what the loop's thread is doing; None when it waits: the whole process was stopped, or got no time."""
    top = sys._current_frames().get(ident)
    if top is None or any(part in top.f_code.co_filename for part in _IDLE):
        return None
    where = _place(top)
    for frame in _frames(top):
        if frame.f_code is Runner.run.__code__:
            run: Run = frame.f_locals["run"]
            return _Holder(where, str(run.task.id), run.task.kind, run)
        if frame.f_code is Runner.run_bulk.__code__:
            run = frame.f_locals["runs"][0]
            return _Holder(where, str(run.task.id), run.task.kind, run)
    return _of_subtask(loop, where)


def _of_subtask(loop: asyncio.AbstractEventLoop, where: str) -> _Holder:
    """Returns the run that an ``asyncio.Task`` belongs to which its handler has started, where Python tells (3.12)."""
    task = asyncio.current_task(loop)
    context: Any = getattr(task, "get_context", dict)()
    current = context.get(CURRENT)
    fields: dict[str, Any] = {} if current is None else current.log_fields()
    return _Holder(where, fields.get("task_id"), str(fields.get("kind", "")))


def _frames(top: FrameType | None) -> Iterator[FrameType]:
    while top is not None:
        yield top
        top = top.f_back


def _place(top: FrameType) -> str:
    """Returns the line of the application that is being executed, else whatever line it is."""
    own = (frame for frame in _frames(top) if not _foreign(frame.f_code.co_filename))
    frame = next(own, top)
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def _foreign(path: str) -> bool:
    return path.startswith(("<", _STANDARD)) or "site-packages" in path or "/redrive/worker/" in path
