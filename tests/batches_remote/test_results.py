"""All items as a file, by each face: the same text, written while it is read."""

from __future__ import annotations

import asyncio
import csv
import io
import subprocess
import sys

import pytest

from redrive import App
from redrive.batches import items
from tests.batches_remote.conftest import Scripted, made, work
from tests.batches_remote.test_faces import client_of
from tests.commands import redrive
from tests.console.conftest import console

# A command line that reads two items at once, and whose store goes away at the third time.
BREAKS = """
from redrive.batches import items as module
from redrive.batches.batch_service import BatchService
from redrive.cli.entry import main
from redrive.errors import StoreError

module.PAGE, read, times = 2, BatchService.items, []

async def items(self, *given, **named):
    times.append(1)
    if len(times) == 3:
        raise StoreError("it is gone")
    return await read(self, *given, **named)

BatchService.items = items
main()
"""


async def test_three_faces_give_the_same_file(
    app: App, store_url: str, provider: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items, "PAGE", 2)
    batch = await made(app, [{"n": n} for n in range(5)])
    await work(app, batch)
    async with console(app) as client:
        at = f"/ops/queue/batches/{batch.id}/results"
        shown = (await client.get(at)).text
        table = list(csv.DictReader(io.StringIO(shown)))
        assert [(row["n"], row["state"]) for row in table] == [(str(n), "completed") for n in range(1, 6)]
        answer = await client.get(f"{at}?format=json")
        assert answer.headers["content-disposition"] == f'attachment; filename="batch-{batch.id}.json"'
        assert [(one["n"], one["payload"]) for one in answer.json()] == [(n + 1, {"n": n}) for n in range(5)]
        assert (await client.get(f"{at}?format=odd")).status_code == 422
    async with client_of(app) as client:
        at = f"/api/batches/{batch.id}/results"
        told = await client.get(at)
        assert told.text == shown and told.headers["content-type"].startswith("text/csv")
        assert (await client.get(at, params={"format": "json"})).json() == answer.json()
        assert (await client.get(at, params={"format": "json", "state": "failed"})).json() == []
        assert (await client.get(at, params={"state": "odd"})).status_code == 422
        assert (await client.get(at, params={"format": "odd"})).status_code == 422
        assert (await client.get("/api/batches/01a1e72a-0cbc-77e5-9c8d-18b5a7f33291/results")).status_code == 404
    command = ["batch", "items", batch.id, "--csv", "--url", store_url]
    written = await asyncio.to_thread(redrive, *command)
    assert written.stdout == shown, written.stderr
    some = await asyncio.to_thread(redrive, *command, "--limit", "3")
    assert some.stdout == "".join(shown.splitlines(keepends=True)[:4])


async def test_the_command_line_writes_while_it_reads(app: App, store_url: str, provider: Scripted) -> None:
    """What was read is out before the rest is asked for, so that it need not be held."""
    batch = await made(app, [{"n": n} for n in range(5)])
    command = [sys.executable, "-c", BREAKS, "batch", "items", str(batch.id), "--csv", "--url", store_url]
    broken = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=120)
    assert broken.returncode != 0 and b"it is gone" in broken.stderr
    rows = list(csv.DictReader(io.StringIO(broken.stdout.decode())))
    assert [row["n"] for row in rows] == ["1", "2", "3", "4"]
