"""supervisord, from PyPI, runs the units that ``redrive deploy supervisor`` prints: start, crash, rolling restart."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redrive import App, State

pytestmark = [pytest.mark.faults, pytest.mark.thorough]
APP = """
import asyncio
from pathlib import Path
from redrive import App, Context
app = App()

@app.task("STEP", timeout=20, max_attempts=1)
async def step(ctx: Context, number: int) -> None:
    await asyncio.sleep(0.2)
    with Path("done.txt").open("a") as file:
        file.write(f"{number}\\n")
"""
GROUPS = """
redrive_app = "shop:app"
[workers.first]
processes = 2
concurrency = 3
[workers.second]
concurrency = 3
"""
OWN = """
[unix_http_server]
file={socket}
[supervisord]
nodaemon=true
logfile={folder}/supervisord.log
pidfile={folder}/supervisord.pid
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://{socket}
[include]
files={folder}/units.conf
"""
TASKS, CRASHED = 150, 3  # of the latter as many as the worker has slots that is killed
WORKERS = ("redrive:redrive-first", "redrive:redrive-second")


class Supervised:
    """A supervisord of this test's own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._configuration = folder / "supervisord.conf"
        self._environment = environment
        socket = Path("/tmp") / f"redrive-{os.getpid()}.sock"  # a path of a socket may not be long
        self._configuration.write_text(OWN.format(folder=folder, socket=socket))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "supervisor.supervisord", "-c", self._configuration], cwd=folder, env=environment
        )

    def control(self, *words: str) -> str:
        command = [sys.executable, "-m", "supervisor.supervisorctl", "-c", str(self._configuration), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, env=self._environment)
        return done.stdout

    def states(self) -> dict[str, str]:
        return {line.split()[0]: line.split()[1] for line in self.control("status").splitlines() if "redrive" in line}

    def pid(self, name: str) -> int:
        return int(self.control("pid", name))

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def until(condition: Callable[[], Any], seconds: float = 60) -> Any:
    ends = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < ends, "it did not come to that"
        time.sleep(0.2)
    return found


@pytest.mark.timeout(240)
def test_start_crash_and_a_rolling_restart_under_load_lose_nothing(tmp_path: Path) -> None:
    """Takes seconds: six processes start, and two of them once more."""
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "redrive.toml").write_text(GROUPS)
    (tmp_path / "done.txt").touch()
    url = f"sqlite:///{tmp_path}/tasks.db"
    given = {name: value for name, value in os.environ.items() if not name.startswith(("REDRIVE_", "TASK_"))}
    given |= {"REDRIVE_URL": url, "PYTHONPATH": str(tmp_path), "TASK_WORKER_DEAD_AFTER_MS": "3000"}
    printed = subprocess.run(
        [
            sys.executable,
            "-m",
            "redrive.cli",
            "deploy",
            "supervisor",
            "--no-http",
            "--user",
            getpass.getuser(),
            "--logs",
            str(tmp_path),
            "--command",
            f"{sys.executable} -m redrive.cli",
        ],
        cwd=tmp_path,
        env=given,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    (tmp_path / "units.conf").write_text(printed.stdout)
    app = App(url)
    app.declare("STEP")
    tasks = app.sync.enqueue_many([("STEP", {"number": number}) for number in range(TASKS // 2)])

    def numbers() -> list[int]:
        return [int(line) for line in (tmp_path / "done.txt").read_text().split()]

    def done() -> int:
        return len(numbers())

    supervised = Supervised(tmp_path, given)
    try:
        until(lambda: supervised.process.poll() is None and set(supervised.states().values()) == {"RUNNING"})
        until(lambda: done() > 5)
        crashed = supervised.pid(WORKERS[1])
        os.kill(crashed, signal.SIGKILL)
        until(lambda: supervised.pid(WORKERS[1]) not in (0, crashed))
        # More for the restarts: a machine may be so slow in starting commands that the first ones are through.
        tasks += app.sync.enqueue_many([("STEP", {"number": number}) for number in range(TASKS // 2, TASKS)])
        for name in WORKERS:
            assert "started" in supervised.control("restart", name)
        until(lambda: {app.sync.get(task.id).state for task in tasks} == {State.COMPLETED}, 90)
        assert set(supervised.states().values()) == {"RUNNING"}
    finally:
        supervised.end()
        app.sync.close()
    assert set(numbers()) == set(range(TASKS))
    again = len(numbers()) - TASKS
    assert again <= CRASHED, "what was restarted in order has finished what it had"
