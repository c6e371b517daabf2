"""Makes sure that what handlers' processes have started does not outlive a worker that is killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from multiprocessing import spawn

from redrive.worker import process_group_killer


class ProcessGroups:
    """Tells the killer which process groups belong to this worker. It is started with the first of them; where it
    cannot be started, a killed worker leaves what its handlers have started."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._killer: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def add(self, group: int) -> None:
        with self._lock:
            self._groups.add(group)
            if self._killer is None:
                self._start()
            else:
                self._tell(f"+{group}\n")

    def discard(self, group: int) -> None:
        with self._lock:
            if group in self._groups:
                self._groups.remove(group)
                self._tell(f"-{group}\n")

    def close(self) -> None:
        """Ends the killer: nothing is left to be killed."""
        with self._lock:
            killer, self._killer = self._killer, None
        if killer is not None:
            _end(killer)

    def _start(self) -> None:
        executable = os.fsdecode(spawn.get_executable() or "")
        try:
            self._killer = subprocess.Popen(
                [executable, "-I", "-S", process_group_killer.__file__, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except (OSError, ValueError):
            return
        self._tell("".join(f"+{group}\n" for group in self._groups))

    def _tell(self, lines: str) -> None:
        """Tells the killer; one that was killed itself is replaced with the next process group."""
        if self._killer is None or self._killer.stdin is None:
            return
        try:
            self._killer.stdin.write(lines.encode())
            self._killer.stdin.flush()
        except OSError:
            _end(self._killer)
            self._killer = None


def _end(killer: subprocess.Popen[bytes]) -> None:
    killer.kill()
    with contextlib.suppress(OSError):
        killer.communicate()
