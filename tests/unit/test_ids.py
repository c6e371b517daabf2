"""Task ids: in order, unlike each other, also after a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from uuid import UUID

import pytest

from redrive.ids import from_text, new_id, time_of


def test_ids_are_version_7_in_order_and_carry_their_time() -> None:
    ids = [new_id() for _ in range(10_000)]
    assert ids == sorted(ids) and len(set(ids)) == 10_000
    assert {(task_id.version, task_id.variant) for task_id in ids} == {(7, "specified in RFC 4122")}
    assert time_of(ids[0]) is not None and time_of(UUID(int=0)) is None


def test_an_id_is_an_ordinary_uuid() -> None:
    made = new_id()
    assert made == UUID(str(made)) == from_text(str(made)) and hash(made) == hash(UUID(str(made)))
    assert repr(made) == repr(UUID(str(made))) and made.bytes == UUID(str(made)).bytes


def test_a_clock_that_is_corrected_is_followed_and_one_that_trembles_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()
    monkeypatch.setattr("redrive.ids.time.time_ns", lambda: now)
    still = [new_id() for _ in range(100)]
    assert still == sorted(still), "a clock that stands still"
    first = new_id()
    now -= 2 * 10**9
    assert new_id() > first  # a step back of two seconds: still in order
    now += 48 * 3600 * 10**9
    ahead = new_id()
    now -= 48 * 3600 * 10**9
    back = new_id()
    assert back < ahead and abs((time_of(back) - time_of(first)).total_seconds()) < 3  # type: ignore[operator]


FORKS = """
import os, random, threading
from redrive.ids import new_id

random.seed(1)
stop = threading.Event()
def busy():
    while not stop.is_set():
        new_id()
threads = [threading.Thread(target=busy, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
made = set()
for _ in range(100):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, new_id().bytes)
        os._exit(0)
    os.close(write)
    made.add(os.read(read, 16)[8:])
    os.close(read)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
print(len(made))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_in_the_middle_of_making_ids_leaves_a_child_that_can_make_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.returncode) == ("100", 0), done.stderr
