"""An application on many event loops keeps no connection of one that is gone."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import subprocess
import sys
import time
import urllib.request
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from redrive import App
from tests.cluster import free_port

ROOT = Path(__file__).parents[2]
TIMES = 40


class Server:
    """What the database server says about an application's connections and tasks."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = psycopg.connect(url, autocommit=True)

    def backends(self) -> set[int]:
        rows = self._connection.execute(
            "select pid from pg_stat_activity where datname = current_database() and application_name = 'redrive'"
        )
        return {pid for (pid,) in rows}

    def settles_at(self, most: int) -> set[int]:
        """The connections there are, once there are no more than so many: a server notices an end a moment later."""
        give_up = time.monotonic() + 60
        while len(found := self.backends()) > most:
            assert time.monotonic() < give_up, f"{len(found)} connections are open"
            time.sleep(0.05)
        return found

    def tasks(self) -> int:
        [(count,)] = self._connection.execute("select count(*) from redrive.task").fetchall()
        return int(count)

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def server(postgres_url: str) -> Iterator[Server]:
    found = Server(postgres_url)
    yield found
    found.close()


@pytest.fixture
def app(postgres_url: str) -> Iterator[App]:
    found = App(postgres_url)
    yield found
    asyncio.run(found.close())


def on_a_loop_that_is_closed_at_once(app: App) -> None:
    """As old code does it: nothing is shut down before the loop is closed."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(app.enqueue("K"))
    loop.close()


def test_asyncio_run_in_a_loop(app: App, server: Server) -> None:
    most = 0
    for _ in range(TIMES):
        asyncio.run(app.enqueue("K"))
        most = max(most, len(server.backends()))
    assert most <= 3 and server.tasks() == TIMES  # each ends with its loop; the server may see that a moment later
    assert server.settles_at(0) == set()


def test_loops_that_are_closed_without_a_shutdown(app: App, server: Server) -> None:
    kept = []
    for _ in range(TIMES // 2):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(app.enqueue("K"))
        loop.close()
        kept.append(loop)  # closed, and still there
    server.settles_at(1)
    asyncio.run(app.enqueue("K"))
    assert server.settles_at(0) == set()


def test_loops_that_are_forgotten_without_being_closed(app: App, server: Server) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(10):
            asyncio.new_event_loop().run_until_complete(app.enqueue("K"))
        gc.collect()
        server.settles_at(0)


def test_a_loop_that_goes_on_keeps_its_connection(app: App, server: Server) -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(app.enqueue("K"))
    [first] = server.backends()
    for _ in range(3):
        asyncio.run(app.enqueue("K"))
        on_a_loop_that_is_closed_at_once(app)
    loop.run_until_complete(app.enqueue("K"))
    assert first in server.backends()
    loop.run_until_complete(app.close())
    loop.close()
    assert first not in server.settles_at(0)


def test_threads(app: App, server: Server) -> None:
    def work(number: int) -> None:
        if number % 3:
            asyncio.run(app.enqueue("K"))
        else:
            on_a_loop_that_is_closed_at_once(app)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(TIMES)))
    assert server.tasks() == TIMES
    asyncio.run(app.enqueue("K"))
    assert server.settles_at(0) == set()


def test_a_loop_inside_a_thread_of_a_loop(app: App, server: Server) -> None:
    async def outer() -> None:
        await app.enqueue("K")
        for _ in range(10):
            await asyncio.to_thread(asyncio.run, app.enqueue("K"))
        await asyncio.gather(*(asyncio.to_thread(asyncio.run, app.enqueue("K")) for _ in range(10)))
        await asyncio.to_thread(server.settles_at, 1)

    asyncio.run(outer())
    assert server.tasks() == 21 and server.settles_at(0) == set()


def test_closing_the_application_closes_what_ordinary_code_uses(app: App, server: Server) -> None:
    app.sync.enqueue("K")
    assert len(server.backends()) == 1
    asyncio.run(app.close())
    assert server.settles_at(0) == set()
    app.sync.enqueue("K")  # and it may be used again
    assert server.tasks() == 2


def test_an_application_that_is_forgotten(postgres_url: str, server: Server) -> None:
    async def scenario() -> None:
        for _ in range(5):
            await App(postgres_url).enqueue("K")
            gc.collect()
        await asyncio.to_thread(server.settles_at, 1)

    asyncio.run(scenario())
    assert server.settles_at(0) == set()


@pytest.mark.parametrize("url", ["sqlite", "postgres"])
def test_a_fork_leaves_the_parents_connections_alone(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """In a process of its own: this one has threads that do not like to be forked."""
    address = request.getfixturevalue("postgres_url") if url == "postgres" else f"sqlite:///{tmp_path}/x.db"
    script = """
import asyncio, os, sys, threading
from redrive import App
from tests.cluster import free_port
app = App(sys.argv[1])
app.sync.enqueue("PARENT")
async def main():
    await app.enqueue("PARENT")
    await asyncio.to_thread(fork)
    await app.enqueue("PARENT")
def fork():
    for way in range(4):
        child = os.fork()
        if child == 0:
            if way % 2:
                app.sync.enqueue("CHILD")
            if way // 2:
                asyncio.run(app.enqueue("CHILD"))
            asyncio.run(app.close())
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        app.sync.enqueue("PARENT")
asyncio.run(main())
app.sync.enqueue("PARENT")
asyncio.run(app.close())
print(len({id(one) for one in threading.enumerate()}))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", script, address],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    counted = App(address)
    totals = asyncio.run(_totals(counted))
    assert totals == {"PARENT": 8, "CHILD": 4}


async def _totals(app: App) -> dict[str, int]:
    async with app:
        return {row.kind: row.n for row in await (await app.store()).counts()}


def test_a_fork_keeps_the_parents_backend(app: App, server: Server) -> None:
    app.sync.enqueue("K")
    [mine] = server.backends()
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    app.sync.enqueue("K")
    assert server.backends() == {mine}


# -- real servers ------------------------------------------------------------------------------------------------------

GUNICORN = ["-m", "gunicorn", "--workers", "2", "--preload", "--bind", "127.0.0.1:{port}", "--graceful-timeout", "5"]
UVICORN = ["-m", "uvicorn", "--host", "127.0.0.1", "--port", "{port}", "--log-level", "warning"]
SERVED = {
    "flask": [*GUNICORN, "tests.integrations.served:flask"],
    "flask-threads": [*GUNICORN, "--threads", "4", "tests.integrations.served:flask"],
    "django-wsgi": [*GUNICORN, "tests.integrations.served:wsgi"],
    "django-asgi": [*UVICORN, "tests.integrations.served:asgi"],
}


@contextlib.contextmanager
def serving(command: list[str], url: str, log: Path, **environment: str) -> Iterator[int]:
    port = free_port()
    arguments = [part.format(port=port) for part in command]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            stdout=out,
            stderr=out,
            env={**os.environ, "REDRIVE_URL": url, **environment},
        )
    try:
        give_up = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None and time.monotonic() < give_up, log.read_text()
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(60)


def _get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize(
    "name",
    [one if one in ("flask", "django-asgi") else pytest.param(one, marks=pytest.mark.thorough) for one in SERVED],
)
def test_web_servers(name: str, postgres_url: str, server: Server, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with serving(SERVED[name], postgres_url, log, PRELOAD_USES="1") as port:
        for path in ("async", "sync", "run"):
            with ThreadPoolExecutor(3) as threads:
                ids = set(threads.map(lambda _, path=path: _get(port, path), range(40)))
            assert len(ids) == 40
        # What is left is of loops that go on: one connection of the code that ran at import, and a pool of up to five
        # for the ordinary code of each process, or for that and the server's own loop.
        server.settles_at(11)
    assert server.tasks() == 121
    assert server.settles_at(0) == set()
    said = log.read_text()
    assert "Traceback" not in said and "ResourceWarning" not in said, said
