"""Through PgBouncer in transaction mode: detected by itself, no LISTEN, everything by polling."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from redrive import App
from redrive.kernel.task import State
from redrive.settings import load_settings
from tests.cluster import free_port, run_directory, server_user
from tests.faults import fault_app
from tests.faults.harness import World, handed_back, until

pytestmark = [pytest.mark.faults, pytest.mark.thorough]
CONFIG = """
[databases]
{name} = host={host} port={port} dbname={name} user=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own}
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 100
unix_socket_dir =
logfile = {directory}/log
pidfile = {directory}/pid
"""


@pytest.fixture
def bouncer(postgres: World) -> Iterator[str]:
    """The URL of the test's database through a PgBouncer with two server connections."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed: redrive behind a transaction pooler was NOT tested")
    parts = urlsplit(postgres.url)
    directory = run_directory() / f"pgbouncer-{uuid4().hex[:6]}"
    directory.mkdir()
    own = free_port()
    values = {"host": parts.hostname, "port": parts.port, "name": parts.path[1:], "own": own, "directory": directory}
    config = directory / "pgbouncer.ini"
    config.write_text(CONFIG.format(**values))
    user = server_user()
    if user is not None:  # like PostgreSQL, it refuses to run as root
        for path in (directory, config):
            os.chown(path, user.pw_uid, user.pw_gid)
    identity = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    process = subprocess.Popen(
        [program, "-q", str(config)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        **identity,
    )
    url = f"postgresql://postgres@127.0.0.1:{own}{parts.path}"
    try:
        until(lambda: _answers(url, process, directory), "pgbouncer answers")
        yield url
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)


def _answers(url: str, process: subprocess.Popen[bytes], directory: Path) -> bool:
    if process.poll() is not None:
        log = directory / "log"
        raise AssertionError(f"pgbouncer ended with {process.returncode}: {log.read_text() if log.exists() else ''}")
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def test_work_through_a_transaction_pooler(postgres: World, bouncer: str) -> None:
    app = App(bouncer, settings=load_settings(url=bouncer))
    app.registry = fault_app.app.registry
    quota = {"TASK_WORKER_KIND_CONCURRENCY": json.dumps({"GATED_THREAD": 1})}
    workers = [postgres.worker(name, url=bouncer, env=quota, concurrency=4) for name in ("first", "second")]
    try:
        ids = [task.id for task in app.sync.enqueue_many([{"kind": "QUICK"} for _ in range(60)])]
        ids += _concurrently(app, 30)
        flaky = [app.sync.enqueue("FLAKY", {"times": 2}).id for _ in range(5)]
        delayed = app.sync.enqueue("QUICK", delay=0.5)
        snoozed = app.sync.enqueue("SNOOZER")
        limited = [app.sync.enqueue("GATED_THREAD", {"name": f"gate-{n}"}) for n in range(2)]
        until(lambda: postgres.effects("start"), "somebody works")
        running = until(lambda: _running(postgres, limited), "one of the limited kind runs")
        assert len(running) == 1
        app.sync.cancel(running[0].id, actor="ann")
        postgres.wait_state(running[0], State.CANCELLED)
        [other] = [task for task in limited if task.id != running[0].id]
        until(lambda: _running(postgres, [other]), "its place is free")
        for n in range(2):
            postgres.open(f"gate-{n}")
        done = [*ids, *flaky, delayed.id, snoozed.id, other.id]
        postgres.wait_completed(done)
        assert [worker.stop() for worker in workers] == [0, 0]
        for worker in workers:
            assert not worker.logged("store.unavailable"), worker.tail()
            assert not worker.logged("raw"), worker.tail()
        counts = postgres.account([*done, running[0].id], handed_back=handed_back(*workers))
        assert counts == {"completed": len(done), "cancelled": 1}
        assert {postgres.get(task_id).attempt_count for task_id in flaky} == {3}
        notified = postgres.sql("select count(*) from pg_stat_activity where query ilike 'listen%'")
        assert notified == [(0,)]
    finally:
        asyncio.run(app.close())


def _running(world: World, tasks: list) -> list:
    return [task for task in tasks if world.get(task).state is State.RUNNING]


def _concurrently(app: App, count: int) -> list:
    """Thirty threads at once, a third of them with the same key."""
    found: list = []
    threads = [
        threading.Thread(
            target=lambda n=n: found.append(app.sync.enqueue("QUICK", idempotency_key="same" if n % 3 == 0 else None))
        )
        for n in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == count
    ids = {task.id for task in found}
    assert len(ids) == count - count // 3 + 1
    return list(ids)
