"""The example of notes, and load on it: real processes of the service and of a worker, on both stores."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from redrive.errors import InvalidInput
from redrive.outbox.sinks.fts5 import Fts5
from redrive_kit.examples.notes_table import notes_of
from tests import commands
from tests.outbox.conftest import BOTH_STORES, make_app

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
NOTES = "search_index_to_elastic"
APP = "redrive_kit.examples.notes:app"
LONGEST = 90


def environment(url: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")}
    return {**kept, "REDRIVE_URL": url, "REDRIVE_LOG": "off"}


@contextmanager
def service(url: str, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "redrive_kit.examples.notes", "--port", "0"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(url), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["url"]
    finally:
        process.kill()
        process.communicate()


def redrive(url: str, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return commands.redrive(*arguments, cwd=tmp_path, env=environment(url), timeout=LONGEST)


def project(url: str, tmp_path: Path) -> None:
    done = redrive(url, tmp_path, "outbox", "work", "--app", APP, "--stop-when-empty", "--metrics-port", "0")
    assert done.returncode == 0, done.stderr


def test_the_tour(url: str, tmp_path: Path) -> None:
    with service(url, tmp_path) as (_, base), httpx.Client(base_url=base, timeout=LONGEST) as client:
        assert "curl" in client.get("/").text
        made = client.post("/notes", json={"title": "Milk", "text": "Two bottles, and bread"})
        note = made.json()
        assert (made.status_code, note["version"]) == (201, 1)
        gone = client.post("/notes", json={"title": "Cheese", "text": "bread, too"}).json()["id"]
        changed = client.put(f"/notes/{note['id']}", json={"text": "Bread alone"}).json()
        assert (changed["title"], changed["text"], changed["version"]) == ("Milk", "Bread alone", 2)
        assert client.delete(f"/notes/{gone}").status_code == 204
        assert client.get(f"/notes/{gone}").status_code == 404
        assert [one["id"] for one in client.get("/notes").json()["items"]] == [note["id"]]
        project(url, tmp_path)
        assert [one["key"] for one in client.get("/search", params={"q": "bread"}).json()["items"]] == [
            f"note:{note['id']}"
        ]
        assert client.get("/search", params={"q": "bottles"}).json()["items"] == []
        refused = [
            client.post("/notes", content=b"no json"),
            client.post("/notes", json={"text": "no title"}),
            client.post("/notes", json={"title": 1}),
            client.post("/notes", content=b'{"title": "\\ud800"}'),
            client.put("/notes/nobody", json={"text": "x"}),
            client.get("/notes", params={"limit": "many"}),
        ]
        assert [one.status_code for one in refused] == [400, 422, 422, 422, 404, 422]
        assert all(one.json()["error"] for one in refused)


@BOTH_STORES
async def test_row_and_event_are_one_transaction(url: str, tmp_path: Path) -> None:
    """An event that cannot be published takes the row with it."""
    app = make_app(url)
    await app.migrate()
    unfit, notes = notes_of(url, "no projection"), notes_of(url, NOTES)
    await unfit.open()
    await notes.open()
    with pytest.raises(InvalidInput, match="projection"):
        await unfit.create("Milk", "bread")
    assert await notes.page("", 10) == []
    note = await notes.create("Milk", "bread")
    for change in (unfit.update(note.id, "Beer", None), unfit.delete(note.id)):
        with pytest.raises(InvalidInput, match="projection"):
            await change
    assert await notes.page("", 10) == [note]
    counts = await (await app.store()).counts()
    assert [count.n for count in counts if count.kind.startswith("OUTBOX")] == [1]
    for one in (unfit, notes):
        await one.close()
    await app.close()


async def test_a_source_for_a_rebuild(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from redrive_kit.examples import notes as example

    app = make_app(url)
    await app.migrate()
    monkeypatch.setattr(example, "app", app)
    async with example.opened() as notes:
        made = [await notes.create(f"note {n}", "") for n in range(5)]
    source = example.NotesSource()
    keys = sorted(f"note:{one.id}" for one in made)
    first = await source.scan("", 3)
    assert [one.key for one in first] == keys[:3]
    assert [one.key for one in await source.scan(first[-1].key, 3)] == keys[3:]
    assert await source.scan("notes", 3) == [] == await source.scan("p", 3)
    assert len(await source.scan("a", 9)) == 5
    assert [one.payload["title"] for one in await source.fetch([f"note:{made[1].id}", "note:none"])] == ["note 1"]
    await app.close()


@pytest.mark.thorough
async def test_load_into_the_database(url: str, tmp_path: Path) -> None:
    app = make_app(url)
    await app.migrate()
    await app.close()
    options = ("--total", "60", "--rate", "0", "--concurrency", "4", "--bytes", "50", "--json")
    said = redrive(url, tmp_path, "outbox", "load", "--scenario", "mixed", *options)
    found = json.loads(said.stdout)
    assert (said.returncode, found["done"], found["failed"], found["errors"]) == (0, 60, 0, {}), said.stderr
    assert found["latency_ms"]["p50"] <= found["latency_ms"]["p99"] <= found["latency_ms"]["max"]
    said = redrive(url, tmp_path, "outbox", "load", "--scenario", "delete", *options)
    found = json.loads(said.stdout)
    assert (found["prepared"], found["operations"]) == (60, {"delete": 60})
    project(url, tmp_path)
    await assert_same(url, tmp_path)


async def assert_same(url: str, tmp_path: Path) -> None:
    """The sink has what the table has, version by version."""
    notes = notes_of(url, NOTES)
    await notes.open()
    source = {f"note:{one.id}": one.version for one in await notes.page("", 1000)}
    await notes.close()
    fts = Fts5(tmp_path / "redrive-search.db")
    assert {one.key: one.version async for one in fts.scan()} == source != {}
    await fts.close()


@pytest.mark.thorough
def test_load_through_the_application_that_dies_and_stops(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/redrive.db"
    with service(url, tmp_path) as (process, base):
        options = ("--api-base", base, "--rate", "0", "--bytes", "20", "--json")
        said = redrive(url, tmp_path, "outbox", "load", "--scenario", "update", "--total", "20", *options)
        found = json.loads(said.stdout)
        assert (said.returncode, found["done"], found["prepared"]) == (0, 20, 20), said.stderr
        # In the middle of a load that would take minutes: its errors are counted, and it goes on.
        command = [sys.executable, "-m", "redrive.cli", "outbox", "load", "--api-base", base, "--rate", "200"]
        load = subprocess.Popen(
            [*command, "--total", "100000", "--json"], env=environment(url), stdout=subprocess.PIPE, text=True
        )
        with httpx.Client(base_url=base, timeout=LONGEST) as client:
            while len(client.get("/notes", params={"limit": 100}).json()["items"]) < 40:
                pass
        process.kill()
        process.wait()
        assert load.poll() is None
        # Ctrl-C ends it with its summary: of whatever it has done.
        with pytest.raises(subprocess.TimeoutExpired):
            load.wait(3)
        load.send_signal(signal.SIGINT)
        ended: dict[str, Any] = json.loads(load.communicate(timeout=LONGEST)[0])
    assert load.returncode == 130 and ended["interrupted"] and ended["done"] >= 20
    assert ended["failed"] == sum(ended["errors"].values()) and any("connect" in kind for kind in ended["errors"])
    said = redrive(url, tmp_path, "outbox", "load", *options)
    assert (said.returncode, said.stdout) == (3, "") and "does not answer" in said.stderr
