"""Processes of a storm, their logs kept as files, none of them left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import psutil

ROOT = Path(__file__).parents[1]


class TooLate(Exception):
    """A storm that takes longer than it may."""


def until(condition: Callable[[], Any], what: str, timeout: float, step: float = 0.05) -> Any:
    """Look until it is so."""
    give_up = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > give_up:
            raise TooLate(f"still not so after {timeout:g} s: {what}")
        time.sleep(step)
    return found


def environment(**given: str) -> dict[str, str]:
    """What a process of the storm sees: nothing of the developer's own settings."""
    foreign = ("TASK_WORKER", "REDRIVE", "STORM", "PG", "COV_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**kept, "PYTHONPATH": path, "STORM_PARENT": str(os.getpid()), **given}


class Program:
    """One process. Started in a session of its own, so that a Ctrl-C reaches the storm alone, which then ends it."""

    def __init__(self, name: str, arguments: list[str], env: dict[str, str], log: Path, *, talks: bool = False) -> None:
        self.name = name
        self.log = log
        pipe = subprocess.PIPE if talks else subprocess.DEVNULL
        with log.open("ab") as output:
            self.process: subprocess.Popen[str] = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=ROOT,
                env=env,
                stdin=pipe,
                stdout=pipe,
                stderr=output,
                text=True,
                start_new_session=True,
            )
        self._before = (0.0, time.monotonic())

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
        out: IO[str] | None = self.process.stdout
        assert out is not None
        return out.readline().strip()

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL to it and whatever it started; returns when it is dead."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait(20)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def stop(self, timeout: float = 30) -> int:
        self.send(signal.SIGTERM)
        return self.process.wait(timeout)

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system

    def rss(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)

    def events(self) -> Iterator[dict[str, Any]]:
        return events_of(self.log)

    def lines(self) -> int:
        return self.log.read_bytes().count(b"\n")


def events_of(log: Path) -> Iterator[dict[str, Any]]:
    """The log lines of a process; what is no JSON (a torn line, a traceback) comes as ``raw``."""
    for line in log.read_text(errors="replace").splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        yield found if isinstance(found, dict) and "event" in found else {"event": "raw", "text": line}
