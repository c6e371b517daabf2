"""What features count in a process that serves HTTP alone is on its page, as ``redrive up --no-worker`` has it."""

from __future__ import annotations

from pathlib import Path

from redrive import App
from redrive.feature.metrics import count
from redrive.settings import load_settings
from redrive.webhooks.metrics import ATTEMPTS
from tests.api.conftest import served


async def test_counts_of_a_process_without_a_worker_are_served(tmp_path: Path) -> None:
    app = App(settings=load_settings(url=f"sqlite:///{tmp_path}/m.db", log_format="off"))
    count(ATTEMPTS, "delivered_by_test")
    async with served(app) as client:
        lines = (await client.get("/metrics")).text.splitlines()
    [line] = [one for one in lines if "delivered_by_test" in one]
    assert line.startswith(f"{ATTEMPTS.name}{{") and 'worker="http"' in line and line.endswith(" 1.0")
