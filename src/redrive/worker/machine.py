"""What this machine tells about processes: which they are, and whether something is left of them."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from redrive.kernel.ports.liveness import Neighbour, Process

LOOK_EVERY_S = 0.05
_PROC = Path("/proc")


def this_process() -> Process:
    """Returns this process; without machine and birth where the system does not tell."""
    stat, machine = _stat(_PROC / "self/stat"), _machine()
    known = (None, None) if stat is None or machine is None else (machine, stat.birth)
    return Process(socket.gethostname(), os.getpid(), *known)


def is_gone(process: Process) -> bool:
    """Returns whether nothing is left of a process of this machine, nor of what it had started in a session or group of
    its own. False where the system does not tell."""
    try:
        os.kill(process.pid, 0)  # unlike /proc, it knows of everybody's processes
    except ProcessLookupError:
        return _any_left(process.pid) is False
    except OSError:
        return False
    stat = _stat(_PROC / f"{process.pid}/stat")
    if stat is None:
        return False
    # A pid is not used again while something is left of a session or group of that number.
    return stat.birth != process.birth or (stat.ended and _any_left(process.pid) is False)


LATE_BEATS = 2  # so many that are missing, and a process that is not here is taken for dead


class Neighbourhood:
    """Tells which of those that say they are of this machine are gone from it.

    A process that was seen here and is here no more is gone. Of one that was never seen here, nobody knows that it ever
    was: machines that were cloned while they ran have the same boot, and perhaps the same host name. So it must have
    missed some beats, too; and one that beats although it is not here is elsewhere, for good."""

    def __init__(self) -> None:
        self._here: set[Process] = set()
        self._missing: dict[Process, float] = {}  # since when it is known that they are not here
        self._elsewhere: set[Process] = set()

    def gone(self, neighbours: Mapping[str, Neighbour], asked: float) -> dict[str, Process]:
        """Returns those that are gone. ``asked``: by this machine's clock, when the store was asked for them."""
        known = {one.process for one in neighbours.values()}
        self._here &= known
        self._elsewhere &= known
        self._missing = {process: since for process, since in self._missing.items() if process in known}
        return {name: one.process for name, one in neighbours.items() if self._is_gone(one, asked)}

    def _is_gone(self, one: Neighbour, asked: float) -> bool:
        process = one.process
        if process in self._elsewhere:
            return False
        if not is_gone(process):
            stat = _stat(_PROC / f"{process.pid}/stat")
            if stat is not None and stat.birth == process.birth:
                self._here.add(process)
            return False
        if process in self._here:
            return True
        if asked - one.silence > self._missing.setdefault(process, time.monotonic()):
            self._elsewhere.add(process)
            return False
        return one.silence > LATE_BEATS * one.every


async def session_ends(session: int, patience: float) -> bool:
    """Waits until no process of a session is left: a worker that was started in one of its own, and what its handlers
    have started. False when some are left after that many seconds, or where the system does not tell."""
    ends = time.monotonic() + patience
    while (left := _any_left(session)) and time.monotonic() < ends:  # noqa: ASYNC110 (nobody tells of others' children)
        await asyncio.sleep(LOOK_EVERY_S)
    return left is False


def _machine() -> str | None:
    """Returns what is the same for processes that see each other under the same pids, and their times of birth too."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        pids = (_PROC / "self/ns/pid").readlink()
    except (OSError, ValueError):
        return None
    try:
        clock = str((_PROC / "self/ns/time").readlink())
    except OSError:  # a kernel that has none: one clock for all
        clock = ""
    return f"{boot} {pids} {clock}".strip()


def _any_left(number: int) -> bool | None:
    """Returns whether a process of this session or process group runs; None where the system does not tell."""
    if not (_PROC / "self" / "stat").exists():
        return None
    stats = (_stat(path) for path in _PROC.glob("[0-9]*/stat"))
    return any(stat is not None and number in (stat.group, stat.session) and not stat.ended for stat in stats)


class _Stat:
    """What /proc/PID/stat says. The name, in parentheses, may have anything in it; what follows the last one does
    not."""

    def __init__(self, text: str) -> None:
        fields = text.rpartition(")")[2].split()
        self.ended = fields[0] in "ZX"
        self.group, self.session, self.birth = int(fields[2]), int(fields[3]), int(fields[19])


def _stat(path: Path) -> _Stat | None:
    try:
        return _Stat(path.read_text(errors="replace"))
    except (OSError, ValueError, IndexError):  # it has just ended
        return None
