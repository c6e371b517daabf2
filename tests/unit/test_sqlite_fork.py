"""A process that used a SQLite store and forks: the child starts anew, and neither takes the other's file away."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import asyncio, os, sys
from redrive import App

app = App("sqlite:///" + sys.argv[1])
app.declare("K")
app.sync.enqueue("K", {"from": "parent"})
assert app.sync.get(app.sync.enqueue("K", {"from": "parent"}).id)
come, go = os.pipe()
child = os.fork()
if child == 0:
    task = app.sync.enqueue("K", {"from": "child"})
    assert app.sync.get(task.id) is not None
    os.write(go, b"x")
    os.close(go)
    # The parent closes its store now; what the child writes after that must last, too.
    parent = os.getppid()
    if sys.argv[2] == "child-last":
        while os.getppid() == parent:
            pass
    for _ in range(3):
        app.sync.enqueue("K", {"from": "child, later"})
    asyncio.run(app.close())
    os.write(2, b"child is done")
    os._exit(0)
os.close(go)
assert os.read(come, 1) == b"x"
if sys.argv[2] == "parent-last":
    assert os.waitpid(child, 0)[1] == 0
    app.sync.enqueue("K", {"from": "parent, later"})
asyncio.run(app.close())
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
@pytest.mark.parametrize(("last", "expected"), [("child-last", 6), ("parent-last", 7)])
def test_a_forked_child_uses_the_store(tmp_path: Path, last: str, expected: int) -> None:
    path = tmp_path / "redrive.db"
    # Standard error is a pipe that both hold: reading it to its end waits for the child as well.
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(path), last], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "child is done")
    with sqlite3.connect(path) as database:
        assert database.execute("select count(*) from redrive_task").fetchone() == (expected,)
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)
