"""A worker in the lifespan of a web application under uvicorn: SIGTERM waits for it, or hands back what it runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive import App, State, Task
from tests.cluster import free_port

ROOT = Path(__file__).parents[2]


class Served:
    """The application under uvicorn, with a task that has begun."""

    def __init__(self, url: str, folder: Path, grace_ms: int) -> None:
        self.port = free_port()
        self.url, self.log = url, folder / "log"
        self.begun, self.open = folder / "begun", folder / "open"
        command = [sys.executable, "-m", "uvicorn", "--port", str(self.port), "tests.integrations.lifespan_app:web"]
        environment = {
            "REDRIVE_URL": url,
            "TASK_WORKER_GRACE_MS": str(grace_ms),
            "REDRIVE_LOG": "json",
            "BEGUN": str(self.begun),
            "OPEN": str(self.open),
        }
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=out, stderr=out, env={**os.environ, **environment}
            )

    def enqueue(self) -> str:
        self.until(lambda: "Uvicorn running" in self.log.read_text())
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}/orders", method="POST")
        with urllib.request.urlopen(asked, timeout=60) as answer:
            task_id: str = json.load(answer)
        self.until(self.begun.exists)
        return task_id

    def said(self, event: str) -> dict[str, Any] | None:
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return next((line for line in lines if line["event"] == event), None)

    def until(self, condition: Callable[[], Any]) -> None:
        give_up = time.monotonic() + 60
        while not condition():
            assert self.process.poll() is None and time.monotonic() < give_up, self.log.read_text()
            time.sleep(0.02)

    def get(self, task_id: str) -> Task:
        async def look() -> Task | None:
            async with App(self.url) as app:
                return await app.get(task_id)

        found = asyncio.run(look())
        assert found is not None
        return found


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[int], Served]]:
    made: list[Served] = []

    def serve(grace_ms: int) -> Served:
        made.append(Served(f"sqlite:///{tmp_path}/x.db", tmp_path, grace_ms))
        return made[-1]

    yield serve
    for served in made:
        served.process.kill()
        served.process.wait()


def test_sigterm_waits_for_what_runs_and_says_so(serve: Callable[[int], Served]) -> None:
    served = serve(600_000)
    task_id = served.enqueue()
    served.process.send_signal(signal.SIGTERM)
    served.until(lambda: served.said("worker.stopping"))
    assert (served.said("worker.stopping") or {})["kinds"] == {"GATED": 1}
    served.open.touch()
    served.process.wait(60)
    found = served.get(task_id)
    assert (found.state, found.result) == (State.COMPLETED, "all of it"), served.log.read_text()
    assert (served.said("worker.stopped") or {})["completed"] == 1
