"""Starts and stops one node of OpenSearch, and knows whether it runs.

The node runs inside a plain Java process instead of OpenSearch's own launcher, which refuses root and wants limits of
the kernel raised. Its folder has the process id and the log, and the address once it answers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tools.opensearch.jars import FOLDER, HERE, NoOpenSearch, jars, program

MAIN = "org.codelibs.opensearch.runner.OpenSearchRunner"
# A small heap, and compiled quickly rather than well: the node lives for minutes.
JAVA = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# The runner takes the first free one of these.
FIRST_PORT, LAST_PORT = 9201, 9299
STARTS_WITHIN_S = 180.0
ENDS_WITHIN_S = 30.0


class Node:
    """One node, with its data in a folder."""

    def __init__(self, folder: Path = FOLDER / "node") -> None:
        self.folder = folder

    @property
    def url(self) -> str | None:
        """Returns the address of the node while it runs."""
        file = self.folder / "url"
        return file.read_text(encoding="utf-8") if self._pid() is not None and file.exists() else None

    def start(self, port: int = FIRST_PORT) -> str:
        """Returns the address of a running node; starts an empty one at this port or the next free one."""
        with self._alone():
            if (found := self.url) is not None:
                return found
            self._end()
            process = self._launch(port)
            try:
                url = self._wait(process)
            except BaseException:
                self._end()
                raise
            (self.folder / "url").write_text(url, encoding="utf-8")
            return url

    def stop(self) -> bool:
        """Ends the node and removes its data. False: there was none."""
        with self._alone():
            return self._end()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Two that start at once get the same node."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _launch(self, port: int) -> subprocess.Popen[bytes]:
        java, library = program("java", "default-jre-headless"), jars()
        config = self.folder / "node_1" / "config"
        config.mkdir(parents=True)
        shutil.copy(HERE / "opensearch.yml", config)
        settings = ["-basePath", str(self.folder), "-numOfNode", "1", "-baseHttpPort", str(port - 1)]
        command = [java, *JAVA, "-cp", f"{library}/*", MAIN, *settings]
        with (self.folder / "log").open("wb") as log:
            # In a session of its own: Ctrl-C of a test run is not for the node. The lock is not handed on (close_fds).
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=self.folder
            )
        (self.folder / "pid").write_text(str(process.pid), encoding="utf-8")
        return process

    def _wait(self, process: subprocess.Popen[bytes]) -> str:
        deadline = time.monotonic() + STARTS_WITHIN_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            port = re.search(r"^HTTP Port:\s+(\d+)", self._log(), re.MULTILINE)
            if port is not None and _answers(url := f"http://127.0.0.1:{port[1]}"):
                return url
            time.sleep(0.3)
        raise NoOpenSearch(f"OpenSearch did not start; its log ends with:\n{self._log()[-2000:]}")

    def _log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def _pid(self) -> int | None:
        """Returns the process, if it is this node's: process ids are given out again."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.folder / "pid").read_text(encoding="utf-8"))
            # However wide the terminal is: a command that is cut short would look like another one.
            listed = ["ps", "-ww", "-o", "args=", "-p", str(pid)]
            command = subprocess.run(listed, check=False, capture_output=True, text=True)
            if MAIN in command.stdout and str(self.folder) in command.stdout:
                return pid
        return None

    def _end(self) -> bool:
        pid = self._pid()
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + ENDS_WITHIN_S
            while self._pid() is not None:
                if time.monotonic() > deadline:
                    os.kill(pid, signal.SIGKILL)
                _reap(pid)
                time.sleep(0.1)
        shutil.rmtree(self.folder, ignore_errors=True)
        return pid is not None


def _reap(pid: int) -> None:
    """A child of ours that has ended stays a process until somebody asks for it."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own
        return bool(answer.status == 200)
    return False
