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

from redrive.kernel.ports.liveness import Neighbour, Process
from redrive.worker import liveness
from redrive.worker.liveness import Neighbourhood, is_gone, this_process

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
    stat = liveness._stat(Path(f"/proc/{pid}/stat"))
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
    monkeypatch.setattr(liveness, "_PROC", tmp_path)
    assert not is_gone(there)
    assert this_process() == Process(there.host, os.getpid())


def test_containers_of_one_host_name_are_different_machines() -> None:
    """Two containers on one host may have the same name; their pids mean different processes."""
    tell = "from redrive.worker.liveness import this_process as p; print(p().host, p().pid, p().machine, sep='|')"
    inside = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", tell]
    try:
        told = subprocess.run(inside, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no pid namespace can be made here: {error}")
    here = this_process()
    host, pid, of = told.strip().split("|")
    assert (host, pid) == (here.host, "1")
    assert of != here.machine and of.split()[0] == (here.machine or "").split()[0], "one boot, two namespaces"


class TestNeighbourhood:
    """Whom this machine may say of that they are gone."""

    def look(self, known: Neighbourhood, process: Process, silence: float) -> bool:
        return "w" in known.gone({"w": Neighbour(process, silence, 4.0)}, time.monotonic())

    def ended(self, child: subprocess.Popen[bytes]) -> Process:
        there = seen(child.pid)
        child.kill()
        child.wait()
        return there

    def test_one_that_was_seen_here_is_gone_at_once(self, child: subprocess.Popen[bytes]) -> None:
        known = Neighbourhood()
        assert not self.look(known, seen(child.pid), 0.0)
        assert self.look(known, self.ended(child), 0.0)

    def test_one_that_was_not_must_have_missed_beats_too(self, child: subprocess.Popen[bytes]) -> None:
        known, there = Neighbourhood(), self.ended(child)
        assert not self.look(known, there, 1.0)
        assert not self.look(known, there, 7.0)
        assert self.look(known, there, 9.0)

    def test_one_that_beats_and_is_not_here_is_elsewhere(self, child: subprocess.Popen[bytes]) -> None:
        """As on a machine that was cloned while it ran: it has the same boot, and perhaps the same host name."""
        known, there = Neighbourhood(), self.ended(child)
        assert not self.look(known, there, 3.0)
        time.sleep(0.01)
        assert not self.look(known, there, 0.0), "it has beaten since"
        assert not self.look(known, there, 60.0), "whatever has become of it, it is not here that one can see it"
        assert known.gone({}, time.monotonic()) == {}
        assert self.look(known, there, 60.0), "of what is forgotten nothing is kept"
