"""Processes that are started, killed and stopped on purpose; their logs are kept as files, none is left behind.
Also what they see as their environment, and how whoever runs them is stopped with them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
ENDS_WITHIN_S = 20.0
# Settings that may be somebody's own: a fresh store of ours has nothing to do with them.
_SETTINGS = ("REDRIVE", "TASK_", "OUTBOX_", "ELASTIC_", "QUEUE_CONNECTION", "BATCH_", "ENTERPRISE_", "COV_")
# These say what an experiment is not about, also on a store that somebody has configured.
_NEVER = ("REDRIVE_APP", "REDRIVE_METRICS_PORT", "REDRIVE_ALERT_", "TASK_WORKER_", "OUTBOX_", "ELASTIC_", "COV_")


class TooLate(Exception):
    """Something takes longer than it may."""


def until(condition: Callable[[], Any], what: str, timeout: float, step: float = 0.05) -> Any:
    """Looks until it is so, and returns what was found."""
    give_up = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > give_up:
            raise TooLate(f"still not so after {timeout:g} s: {what}")
        time.sleep(step)
    return found


async def poll(look: Callable[[], Awaitable[T]], patience: float, step: float = 0.1) -> T:
    """Looks until something is there; returns what was found last, also once so many seconds are over."""
    give_up = time.monotonic() + patience
    while not (found := await look()) and time.monotonic() <= give_up:  # noqa: ASYNC110 (nothing tells)
        await asyncio.sleep(step)
    return found


class Program:
    """One process, ``python -m …``. It is in a session of its own, so that a Ctrl-C reaches only whoever started it,
    who then ends it."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        *,
        talks: bool = False,
        cwd: Path | None = None,
    ) -> None:
        """``talks``: its standard input and output are pipes. ``log``: where its standard error goes."""
        self.name = name
        self.log = log
        pipe = subprocess.PIPE if talks else subprocess.DEVNULL
        with log.open("ab") as output:
            self.process: subprocess.Popen[str] = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=cwd,
                env=dict(env),
                stdin=pipe,
                stdout=pipe,
                stderr=output,
                text=True,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def kill(self) -> None:
        """Sends SIGKILL to it and whatever it started; returns when it is dead."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait(ENDS_WITHIN_S)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def stop(self, timeout: float = 30) -> int:
        """Sends SIGTERM; returns the exit code."""
        self.send(signal.SIGTERM)
        return self.process.wait(timeout)

    def events(self) -> Iterator[dict[str, Any]]:
        return events_of(self.log)

    def lines(self) -> int:
        return self.log.read_bytes().count(b"\n")


def events_of(log: Path) -> Iterator[dict[str, Any]]:
    """Yields the log lines of a process; what is no JSON (a torn line, a traceback) comes as ``raw``."""
    for line in log.read_text(errors="replace").splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        yield found if isinstance(found, dict) and "event" in found else {"event": "raw", "text": line}


def environment(given: Mapping[str, str], *, fresh: bool) -> dict[str, str]:
    """Returns the environment of a process. ``fresh``: the store was made for this, so nothing of the surrounding
    settings is meant; else what is kept, and for how long, is as it is configured where this runs."""
    foreign = _SETTINGS if fresh else _NEVER
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, "REDRIVE_LOG": "json", **given}


def run_until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """Returns what a coroutine returns. SIGTERM interrupts it as Ctrl-C does: what it started is ended."""

    async def watched() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(watched())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
