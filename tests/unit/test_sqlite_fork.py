"""A process that used a SQLite store and forks: the child starts anew, and neither takes the other's file away."""

from __future__ import annotations

import os
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


def run(script: str, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Standard error is a pipe that parent and child hold: reading it to its end waits for both."""
    command = [sys.executable, "-W", "ignore", "-c", script, str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize(("last", "expected"), [("child-last", 6)])
def test_a_forked_child_uses_the_store(tmp_path: Path, last: str, expected: int) -> None:
    path = tmp_path / "redrive.db"
    done = run(SCRIPT, path, last)
    assert (done.stderr, done.returncode) == ("child is done", 0)
    with sqlite3.connect(path) as database:
        assert database.execute("select count(*) from redrive_task").fetchone() == (expected,)
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)


# A handler's transaction is open, large enough to have reached the log already, when somebody forks.
IN_TRANSACTION = """
import asyncio, os, sys, threading
import concurrent.futures.thread  # by now: imported during a fork, it releases a lock that it did not take before
from redrive import App
from redrive.errors import StoreError
from redrive.kernel.commit import Commit
from redrive.kernel.machine import Lease, Policy, settle
from redrive.kernel.outcome import Completed
from redrive.kernel.ports.store import ClaimRequest
from redrive.stores.sqlite import connect

connect._SETTINGS += "pragma cache_size = 10;"  # what is written goes to the log before the commit
app = App("sqlite:///" + sys.argv[1])
app.declare("K")
opened, forked = threading.Event(), threading.Event()

def message(work):
    try:
        asyncio.run(asyncio.wait_for(work, 30))
    except StoreError as error:
        return str(error)
    raise AssertionError("the child was not refused")

def in_child(transaction):
    assert "forked while a transaction was open" in message(app.enqueue("K"))
    assert "forked while a transaction was open" in message(app.get("0" * 32))
    assert "forked while a transaction was open" in message(App("sqlite:///" + sys.argv[1]).enqueue("K"))
    assert "transaction is over" in message(transaction.execute("insert into mine values ('child')"))
    os.write(2, b"child is done")

async def hold():
    store = await app.store()
    await app.enqueue("K")
    [task] = (await store.cycle(Commit(), ClaimRequest("w", ("default",), 1, 60.0))).claimed
    lease = Lease(task.id, task.token, 1, 5, "w", 1.0)
    async with store.sql.transaction(lambda: settle(lease, Completed(), Policy(), 0.5)) as transaction:
        await transaction.execute("create table mine (text)")
        for _ in range(200):
            await transaction.execute("insert into mine values (?)", "parent " * 1000)
        if sys.argv[2] == "inside":
            child = os.fork()
            if child == 0:
                in_child(transaction)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        else:
            opened.transaction = transaction
            opened.set()
            await asyncio.to_thread(forked.wait)
        await transaction.execute("insert into mine values ('the last')")
    await app.enqueue("K")
    await app.close()

if sys.argv[2] == "inside":
    asyncio.run(hold())
else:
    holder = threading.Thread(target=asyncio.run, args=(hold(),))
    holder.start()
    opened.wait()
    child = os.fork()
    if child == 0:
        in_child(opened.transaction)
        sys.exit()  # the interpreter takes itself apart: the connection must survive that, too
    assert os.waitpid(child, 0)[1] == 0
    forked.set()
    holder.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("where", ["beside"])
def test_a_fork_in_a_transaction_leaves_it_to_the_parent(tmp_path: Path, where: str) -> None:
    path = tmp_path / "redrive.db"
    done = run(IN_TRANSACTION, path, where)
    assert (done.stderr, done.returncode) == ("child is done", 0)
    with sqlite3.connect(path) as database:
        assert database.execute("select count(*) from mine").fetchone() == (201,)
        assert database.execute("select state from redrive_history").fetchall() == [("completed",)]
        assert database.execute("select count(*) from redrive_task").fetchone() == (1,)
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)


# Transactions that the store makes itself are short: the fork waits for them, and the child can go on.
BUSY = """
import asyncio, os, sys, threading
from redrive import App

app = App("sqlite:///" + sys.argv[1])
app.declare("K")
app.sync.enqueue("K")
stop = False

def write():
    while not stop:
        app.sync.enqueue_many([("K", {"from": "parent"})] * 50)

def read():
    while not stop:
        app.sync.get("0" * 32)

threads = [threading.Thread(target=work) for work in (write, write, read)]
for thread in threads:
    thread.start()
children = []
for _ in range(20):
    child = os.fork()
    if child == 0:
        asyncio.run(asyncio.wait_for(app.enqueue("K", {"from": "child"}), 60))
        os._exit(0)
    children.append(child)
codes = [os.waitpid(child, 0)[1] for child in children]
stop = True
for thread in threads:
    thread.join()
asyncio.run(app.close())
assert codes == [0] * 20, codes
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_waits_for_what_the_store_is_doing(tmp_path: Path) -> None:
    path = tmp_path / "redrive.db"
    done = run(BUSY, path)
    assert (done.stderr, done.returncode) == ("", 0)
    with sqlite3.connect(path) as database:
        children = """select count(*) from redrive_task where payload like '%child%'"""
        assert database.execute(children).fetchone() == (20,)
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)
