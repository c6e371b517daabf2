"""Hints from the file system: an idle store hears what another process commits, without looking all the time."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.ports.store import Wake
from redrive.kernel.task import NewTask
from redrive.stores.sqlite import changes
from redrive.stores.sqlite.changes import ChangePoller, Watch
from redrive.stores.sqlite.store import SqliteStore

linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux")
NEVER = 1000.0
PRODUCER = """
import asyncio, sys
from redrive import App

async def main():
    async with App("sqlite:///" + sys.argv[1]) as app:
        app.declare("K")
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            await app.enqueue("K")

asyncio.run(main())
"""


class Producer:
    """Another process that enqueues when it is told to."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def enqueue(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")


@asynccontextmanager
async def producer(path: Path) -> AsyncIterator[Producer]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PRODUCER, str(path), stdin=pipe, stdout=pipe)
    assert process.stdin is not None and process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    try:
        yield Producer(process)
    finally:
        process.stdin.close()
        assert await process.wait() == 0


class Listener:
    """A store as an idle worker has it, and the hints it gets."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.heard: asyncio.Queue[Wake] = asyncio.Queue()
        self.change_poller = store._writer._change_poller
        store.listen(self.heard.put_nowait, ["default"])

    async def falls_asleep(self, pause: float = 0.5) -> None:
        """Until it has looked so often in vain that it will not look for ``pause`` seconds."""
        async with asyncio.timeout(60):
            while self.change_poller._pause < pause or not self.change_poller._asleep:
                await asyncio.sleep(0.005)
        while not self.heard.empty():
            self.heard.get_nowait()

    async def wakes_up(self, within: float) -> None:
        async with asyncio.timeout(within):
            while await self.heard.get() != Wake():
                pass


@asynccontextmanager
async def listener(path: Path) -> AsyncIterator[Listener]:
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    try:
        yield Listener(store)
    finally:
        await store.close()


def hear_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "POLL_WITH_HINTS_EVERY_S", NEVER)


def watches() -> int:
    """File descriptors of inotify that this process has."""
    return [os.readlink(f"/proc/self/fd/{fd}") for fd in _descriptors()].count("anon_inode:inotify")


def _descriptors() -> list[str]:
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{fd}")]


@linux
class TestHints:
    @pytest.mark.parametrize("linked", [True], ids=["link"])
    async def test_a_commit_of_another_process(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
    ) -> None:
        hear_only(monkeypatch)
        path = tmp_path / "redrive.db"
        if linked:
            (tmp_path / "links").mkdir()
            path = tmp_path / "links" / "redrive.db"
            path.symlink_to(tmp_path / "redrive.db")
        async with listener(path) as idle, producer(tmp_path / "redrive.db") as other:
            for _ in range(2):
                await idle.falls_asleep()
                other.enqueue()
                await idle.wakes_up(within=60)

    async def test_a_log_that_was_deleted_and_made_anew(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        hear_only(monkeypatch)
        path = tmp_path / "redrive.db"
        async with listener(path) as idle:
            await idle.falls_asleep(0.01)
            await idle.store.close()  # the last one: it takes the log with it
            assert not (tmp_path / "redrive.db-wal").exists()
            async with producer(path) as other:
                await idle.store.open()
                again = Listener(idle.store)
                await again.falls_asleep()
                other.enqueue()
                await again.wakes_up(within=60)

    async def test_own_commits_are_not_news(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        hear_only(monkeypatch)
        heard: list[bool] = []
        wait = Watch.wait
        monkeypatch.setattr(Watch, "wait", lambda self, timeout: heard.append(wait(self, timeout)) or heard[-1])
        async with listener(tmp_path / "redrive.db") as idle:
            for _ in range(5):
                await idle.falls_asleep(0.02)
                await idle.store.apply(Commit(enqueues=[NewTask(new_id(), "K", "default", None)]))
            await idle.falls_asleep(0.1)
            assert Wake() not in [idle.heard.get_nowait() for _ in range(idle.heard.qsize())]
        assert heard and not any(heard)

    async def test_nothing_is_left_open(self, tmp_path: Path) -> None:
        async with listener(tmp_path / "other.db") as kept:
            await kept.falls_asleep(0.01)
            gc.collect()  # what earlier tests left behind does not go meanwhile
            before, watched = len(_descriptors()), watches()
            for _ in range(3):
                async with listener(tmp_path / "redrive.db") as idle:
                    await idle.falls_asleep(0.01)
                    assert watches() == watched + 1
            assert watches() == watched
            assert len(_descriptors()) <= before


@pytest.mark.parametrize("code", [errno.EMFILE])
async def test_where_nothing_can_be_watched_it_is_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    def fail(name: str, *_: object) -> int:
        raise OSError(code, f"{name}: {os.strerror(code)}")

    hear_only(monkeypatch)
    monkeypatch.setattr(changes, "_call", fail)
    caplog.set_level(logging.DEBUG, "redrive.sqlite")
    async with listener(tmp_path / "redrive.db") as idle, producer(tmp_path / "redrive.db") as other:
        for _ in range(2):
            other.enqueue()
            await idle.wakes_up(within=60)
    assert len(caplog.records) == 1
    assert "cannot be watched" in caplog.text and os.strerror(code) in caplog.text


@linux
class TestLookout:
    def test_after_a_hint_it_looks_again_and_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The log is written before the commit can be seen, which no further hint announces."""
        hear_only(monkeypatch)
        log = tmp_path / "redrive.db-wal"
        log.touch()
        looks = ChangePoller(str(tmp_path / "redrive.db"))
        bell = threading.Lock()
        bell.acquire()
        while looks._pause < 0.1:
            assert not looks.wait(bell)
        log.write_bytes(b"frame")
        pauses = []
        while not pauses or pauses[-1] < 0.2:
            assert not looks.wait(bell)
            pauses.append(looks._pause)
        looks.close()
        # At once, and then never for much longer than the commit has already taken, nor more often than that needs.
        assert pauses[0] == changes.LOOK_AGAIN_AFTER_S
        assert all(earlier < later <= 3 * earlier for earlier, later in pairwise(pauses))

    def test_the_bell_is_heard_beside_the_watch(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        hear_only(monkeypatch)
        (tmp_path / "redrive.db-wal").touch()
        looks = ChangePoller(str(tmp_path / "redrive.db"))
        bell = threading.Lock()
        bell.acquire()

        def ring() -> None:
            time.sleep(0.05)
            bell.release()
            looks.ring()

        for _ in range(3):
            looks._pause = NEVER
            ringer = threading.Thread(target=ring)
            ringer.start()
            assert looks.wait(bell)
            ringer.join()
        looks.close()


@linux
class TestWatch:
    def test_a_file_that_comes_changes_goes_and_comes_again(self, tmp_path: Path) -> None:
        log = tmp_path / "log"
        hears = Watch()
        assert not hears.follow(str(log))
        for _ in range(2):
            log.touch()
            assert hears.follow(str(log)) and hears.follow(str(log))
            hears.forget()
            assert not hears.wait(0.001)
            with log.open("r+b") as file:
                for _ in range(100):
                    file.write(b"x")
                    file.flush()
                assert hears.wait(NEVER)
                assert not hears.wait(0.001)  # a burst is one event
                file.truncate(0)
                assert hears.wait(NEVER)
                log.unlink()  # while somebody has it open, as SQLite would
                assert hears.wait(NEVER)
            assert not hears.follow(str(log))
        hears.close()


FORK = """
import asyncio, os, sys
from redrive import App
from redrive.kernel.ports.store import Wake
from redrive.stores.sqlite import changes

def watches():
    found = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return [os.readlink(path) for path in found if os.path.islink(path)].count("anon_inode:inotify")

async def asleep(store):
    while store._writer._change_poller._pause < 0.5 or not store._writer._change_poller._asleep:
        await asyncio.sleep(0.005)

async def hear(store, go):
    heard = asyncio.Event()
    store.listen(lambda wake: heard.set() if wake == Wake() else None, ["default"])
    await asleep(store)
    heard.clear()
    os.write(go, b"x")
    await asyncio.wait_for(heard.wait(), 60.0)

async def enqueue(app, come):
    await app.store()
    os.read(come, 1)
    await app.enqueue("K")

async def begin(app):
    store = await app.store()
    store.listen(lambda wake: None, ["default"])
    await asleep(store)
    assert watches() == 1

changes.POLL_WITH_HINTS_EVERY_S = 1000
app = App("sqlite:///" + sys.argv[1])
app.declare("K")
asyncio.run(begin(app))
to_child, to_parent = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    assert watches() == 0
    asyncio.run(enqueue(app, to_child[0]))
    asyncio.run(hear(app.connections.main._shared, to_parent[1]))
    assert watches() == 1
    asyncio.run(app.close())
    os.write(2, b"child is done")
    os._exit(0)
asyncio.run(hear(app.connections.main._shared, to_child[1]))
asyncio.run(enqueue(app, to_parent[0]))
assert os.waitpid(child, 0)[1] == 0
asyncio.run(app.close())
assert watches() == 0
"""


@linux
def test_parent_and_child_each_hear_the_other(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path / "redrive.db")],
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert (done.returncode, done.stderr) == (0, "child is done")
