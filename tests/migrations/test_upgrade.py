"""An upgrade under load: workers of the version before run while the database is migrated, and every task is found.

The version before is the last one that was tagged; as long as there is none, the last commit before the steps were
joined into one. Both are taken from this repository's history: where that is absent (a copy without history, a shallow
clone) nothing of this can be tested, and the test says so.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from redrive import App, State
from redrive.stores import make_store

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
BEFORE_JOINED_STEPS = "b39408c8032e2bb752336e51e15301950045cb0a"
APP = """
import asyncio, os, time
from redrive import App, Context, Fail

app = App()

@app.task("QUICK", queue="work")
async def quick(ctx: Context, n: int = 0) -> int:
    return n

@app.task("SLOW", queue="work")
async def slow(ctx: Context, seconds: float) -> None:
    await asyncio.sleep(seconds)

@app.task("BROKEN", queue="work", max_attempts=1)
async def broken(ctx: Context) -> None:
    raise Fail("NEVER_WORKS")

@app.task("NEVER", queue="nobody")
async def never(ctx: Context) -> None: ...
"""
# One task in each state that a task can be in while nobody runs it, and then a load that goes on.
PRODUCER = """
import asyncio, json, sys, time
from upgrade_app import app

async def main():
    made = {}
    made["queued"] = str((await app.enqueue("NEVER")).id)
    made["delayed"] = str((await app.enqueue("NEVER", delay=3600)).id)
    made["failed"] = str((await app.enqueue("BROKEN")).id)
    made["completed"] = str((await app.enqueue("QUICK", {"n": 7})).id)
    made["cancelled"] = str((await app.enqueue("NEVER", delay=3600)).id)
    await app.cancel(made["cancelled"], reason="not wanted")
    made["running"] = str((await app.enqueue("SLOW", {"seconds": 7})).id)
    made["keyed"] = str((await app.enqueue("NEVER", idempotency_key="once")).id)
    print(json.dumps(made), flush=True)
    load = []
    n = 0
    while not STOP.exists():
        load += [str(task.id) for task in await app.enqueue_many([("QUICK", {"n": n + i}) for i in range(20)])]
        n += 20
        ENQUEUED.write_text(str(n))
        await asyncio.sleep(0.1)
    print(json.dumps(load), flush=True)
    await app.close()

from pathlib import Path
STOP, ENQUEUED = Path(sys.argv[1]), Path(sys.argv[2])
asyncio.run(main())
"""


def git(*args: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *args], check=True, capture_output=True).stdout


def sources_before(folder: Path) -> Path:
    """Returns the sources of the version before."""
    tag = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--tags", "--abbrev=0", "--match", "v*"], capture_output=True
    )
    commit = tag.stdout.decode().strip() or BEFORE_JOINED_STEPS
    with zipfile.ZipFile(BytesIO(git("archive", "--format=zip", commit, "src"))) as files:
        files.extractall(folder / "before")
    return folder / "before" / "src"


def environment(*sources: Path) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("REDRIVE_", "TASK_"))}
    return ours | {"PYTHONPATH": os.pathsep.join(map(str, sources))}


@pytest.fixture
def version_before(tmp_path: Path) -> Path:
    """The sources of the version before."""
    try:
        return sources_before(tmp_path)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"UPGRADES WERE NOT TESTED: {error}")


class Version:
    """Commands of one version of redrive, against one store."""

    def __init__(self, sources: Path, folder: Path, url: str) -> None:
        self._environment = {
            **environment(sources, folder),
            "REDRIVE_URL": url,
            "REDRIVE_LOG": "json",
            "TASK_WORKER_LEASE_MS": "3000",
        }
        self._folder = folder
        self._log = folder / f"{sources.parent.name}.log"

    def python(self, *args: str, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, *args], cwd=self._folder, env=self._environment, text=True, **more)

    def redrive(self, *args: str) -> str:
        command = [sys.executable, "-m", "redrive.cli", *args]
        done = subprocess.run(command, cwd=self._folder, env=self._environment, text=True, capture_output=True)
        assert done.returncode == 0, f"redrive {' '.join(args)}: {done.stdout}{done.stderr}"
        return done.stdout

    def worker(self) -> subprocess.Popen[str]:
        log = self._log.open("a")
        args = ("-m", "redrive.cli", "work", "--app", "upgrade_app:app", "--queue", "work")
        return self.python(*args, stdout=log, stderr=log)

    def errors(self) -> list[str]:
        """Returns what its workers had to say that is an error."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]
        return [str(line) for line in lines if line["level"] in ("error", "critical") and line.get("kind") != "BROKEN"]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/upgrade.db"
    found: str = request.getfixturevalue("empty_postgres_url")
    return found


@pytest.fixture
def versions(version_before: Path, tmp_path: Path, url: str) -> tuple[Version, Version]:
    (tmp_path / "upgrade_app.py").write_text(APP)
    (tmp_path / "producer.py").write_text(PRODUCER)
    return Version(version_before, tmp_path, url), Version(ROOT / "src", tmp_path, url)


@pytest.fixture
def ended() -> Iterator[list[subprocess.Popen[str]]]:
    """Whoever is started here is gone afterwards."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


async def until(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come about"
        await asyncio.sleep(0.1)


async def more(enqueued: Path, tasks: int = 100) -> None:
    """Returns when the producer has enqueued so many more."""

    def count() -> int:
        return int((enqueued.read_text() if enqueued.exists() else "") or 0)

    before = count()
    await until(lambda: count() >= before + tasks)


async def states(app: App, ids: list[str]) -> dict[str, State]:
    found = [await app.get(one) for one in ids]
    assert None not in found, "a task is gone"
    return {str(task.id): task.state for task in found if task is not None}


async def test_every_task_is_found_after_an_upgrade_under_load(
    versions: tuple[Version, Version], url: str, tmp_path: Path, ended: list[subprocess.Popen[str]]
) -> None:
    before, now = versions
    before.redrive("migrate")
    ended += [before.worker(), before.worker()]
    stop = tmp_path / "stop"
    enqueued = tmp_path / "enqueued"
    producer = before.python("producer.py", str(stop), str(enqueued), stdout=subprocess.PIPE)
    ended.append(producer)
    assert producer.stdout is not None
    made: dict[str, str] = json.loads(await asyncio.to_thread(producer.stdout.readline))
    await more(enqueued)

    assert "schema version" in before.redrive("migrate", "--status")
    now.redrive("migrate")
    await more(enqueued)  # old workers and an old producer go on after the step
    ended.append(now.worker())
    await more(enqueued)
    ended[1].kill()  # a worker of the version before dies with what it runs
    await more(enqueued)
    stop.touch()
    load: list[str] = json.loads(await asyncio.to_thread(producer.stdout.readline))
    assert producer.wait(60) == 0
    ended[0].send_signal(signal.SIGTERM)  # its successor is there
    assert ended[0].wait(60) == 0

    app = App(url)
    try:
        everything = [*load, made["running"]]
        for _ in range(300):
            found = await states(app, everything)
            if set(found.values()) == {State.COMPLETED}:
                break
            await asyncio.sleep(0.2)
        assert set(found.values()) == {State.COMPLETED}
        kept = await states(app, list(made.values()))
        assert {name: kept[task_id].value for name, task_id in made.items()} == {
            "queued": "queued",
            "delayed": "delayed",
            "failed": "failed",
            "completed": "completed",
            "cancelled": "cancelled",
            "running": "completed",
            "keyed": "queued",
        }
        app.declare("NEVER", queue="nobody")
        again = await app.enqueue("NEVER", idempotency_key="once")
        assert str(again.id) == made["keyed"] and again.deduplicated
        await app.retry(made["failed"], reason="the new version")
        await app.retry(made["cancelled"], reason="the new version")
    finally:
        await app.close()
    assert before.errors() == [] and now.errors() == []
    store = make_store(url)
    try:
        await store.open()
        counted = {(c.kind, c.state): c.n for c in await store.counts()}
        assert counted[("QUICK", State.COMPLETED)] == len(load) + 1
    finally:
        await store.close()
