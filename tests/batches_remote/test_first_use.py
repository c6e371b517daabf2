"""The first items and the first webhook of a worker find everything imported: an import on its event loop would hold up
heartbeats, leases and every other handler."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.settings import load_settings
from redrive.testing.provider import simulated_provider
from redrive.webhooks.settings import WebhookSettings
from tests.batches_remote.conftest import rich
from tests.webhooks.receiver import Receiver, receiving

WEBHOOKS = {"allow_networks": ["127.0.0.0/8"], "secret": "a secret that only tests know"}
PROGRAM = Path(__file__).with_name("first_use.py")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as own:
        yield own


@contextmanager
def fresh_worker(url: str, providers: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(PROGRAM), json.dumps({"url": url, "providers": providers, "webhooks": WEBHOOKS})]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


async def test_nothing_is_imported_when_the_first_batch_runs(store_url: str, receiver: Receiver) -> None:
    with simulated_provider("--duration", "0.01") as simulated:
        providers = {"video": simulated.table}
        settings = load_settings(url=store_url, log_format="off", providers=providers)
        app = App(settings=settings.holding(WebhookSettings(**WEBHOOKS)))
        await app.migrate()
        await rich(app)
        with fresh_worker(store_url, providers) as worker:
            batch = await app.remote_batches.create(
                [{}, {}], provider="video", account="acme", price=10, webhook_url=receiver.url()
            )
            receiver.wait_for(1)
            said, _ = worker.communicate("")
        found = await app.remote_batches.get(batch.id)
        await app.close()
    assert found.settled
    assert json.loads(said) == []
