"""Which processes of this machine are gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from redrive.kernel.ports.liveness import Process
from redrive.worker import machine
from redrive.worker.machine import is_gone, this_process

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]
LEAVES = [
    sys.executable,
    "-c",
    "import subprocess; print(subprocess.Popen(['sleep', '600'], stdout=-3).pid, flush=True)",
]

pytestmark = pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="this system does not tell")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(SLEEPS)
    yield process
    process.kill()
    process.wait()


def seen(pid: int) -> Process:
    stat = machine._stat(Path(f"/proc/{pid}/stat"))
    assert stat is not None
    return replace(this_process(), pid=pid, birth=stat.birth)


def test_a_process_is_gone_when_it_has_ended(child: subprocess.Popen[bytes]) -> None:
    there = seen(child.pid)
    assert not is_gone(this_process()) and not is_gone(there)
    child.send_signal(signal.SIGSTOP)
    assert not is_gone(there), "it is only stopped"
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(there), "nobody has asked for its exit code yet"
    child.wait()
    assert is_gone(there)


def test_another_process_may_have_its_pid(child: subprocess.Popen[bytes]) -> None:
    there = seen(child.pid)
    assert there.birth is not None
    assert is_gone(replace(there, birth=there.birth - 1))


def test_it_is_not_gone_while_something_is_left_that_it_has_started() -> None:
    leader = subprocess.Popen(LEAVES, stdout=subprocess.PIPE, start_new_session=True)
    assert leader.stdout is not None
    there, left = seen(leader.pid), int(leader.stdout.readline())
    leader.communicate()
    try:
        assert not is_gone(there)
    finally:
        os.kill(left, signal.SIGKILL)
    ends = time.monotonic() + 30
    while not is_gone(there):
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_where_the_system_does_not_tell_nobody_is_gone(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    there = seen(child.pid)
    child.kill()
    child.wait()
    monkeypatch.setattr(machine, "_PROC", tmp_path)
    assert not is_gone(there)
    assert this_process() == Process(there.host, os.getpid())
