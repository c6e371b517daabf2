"""``redrive outbox rebuild`` and ``verify`` on the command line: what is said, the documents, the exit codes."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from redrive import App
from redrive.cli.main import run
from redrive.cli.support import follow
from redrive.ids import new_id
from redrive.outbox.event import Event, Op
from redrive.outbox.sinks.fts5 import Fts5
from redrive.outbox.verdict import Done
from redrive.settings import load_settings

PROJECTIONS = {"notes": {"sink": "fts5:///search.db"}, "bare": {"sink": "fts5:///bare.db"}}


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def redrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """A store with a table ``notes`` of three rows, whose trigger feeds the projection ``notes``; calls a command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRIVE_URL", f"sqlite:///{tmp_path}/redrive.db")
    monkeypatch.setenv("REDRIVE_LOG", "off")
    monkeypatch.setenv("REDRIVE_ACTOR", "ann")
    monkeypatch.setenv("OUTBOX_PROJECTIONS", json.dumps(PROJECTIONS))
    monkeypatch.setattr(follow, "LOOK_EVERY_S", 0.05)

    def call(*arguments: str) -> Said:
        capsys.readouterr()
        code = run(["outbox", *arguments] if arguments[0] in ("rebuild", "verify", "trigger") else list(arguments))
        return Said(code, *capsys.readouterr())

    assert call("migrate").code == 0
    execute("create table notes (id integer primary key, title text, version integer not null default 1)")
    execute(call("trigger", "notes", "--projection", "notes", "--version", "version").out)
    execute("insert into notes (id, title) values (1, 'one'), (2, 'two'), (3, 'three')")
    assert call("work", "--queue", "outbox:notes", "--stop-when-empty").code == 0
    assert index() == {"notes:1": 1, "notes:2": 1, "notes:3": 1}
    return call


def execute(text: str) -> None:
    with closing(sqlite3.connect("redrive.db", timeout=60)) as connection:
        connection.executescript(text)


def index() -> dict[str, int]:
    """Returns the versions that the live index has."""

    async def scan(sink: Fts5) -> dict[str, int]:
        return {one.key: one.version async for one in sink.scan()}

    return _with_sink(scan)


def plant(*events: Event) -> None:
    """Makes an index of these the live one, past the outbox."""

    async def write(sink: Fts5) -> None:
        await sink.create("planted")
        assert await sink.write(events, "planted") == [Done()] * len(events)
        await sink.swap("planted")

    _with_sink(write)


def _with_sink(work: Callable[[Fts5], Any]) -> Any:
    async def do() -> Any:
        sink = Fts5("search.db")
        try:
            return await work(sink)
        finally:
            await sink.close()

    return asyncio.run(do())


def note(number: int, version: int) -> Event:
    return Event(new_id(), "notes", str(number), Op.UPSERT, version, {"title": "planted"})


@contextmanager
def worker() -> Iterator[None]:
    """A worker beside the command, which carries out what is begun."""
    loop, begun = asyncio.new_event_loop(), threading.Event()
    tasks: list[asyncio.Task[None]] = []

    async def work() -> None:
        app = App(settings=load_settings(interval_ms=20))
        tasks.append(asyncio.create_task(app.worker().run()))
        begun.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        await app.close()

    thread = threading.Thread(target=lambda: loop.run_until_complete(work()))
    thread.start()
    try:
        assert begun.wait(60)
        yield
    finally:
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
        thread.join(60)
        assert not thread.is_alive()
        loop.close()


def test_a_rebuild_is_followed_to_its_end(redrive: Callable[..., Said]) -> None:
    plant(note(1, 1), note(7, 1))
    with worker():
        said = redrive("rebuild", "notes", "--reason", "a ghost was seen")
        assert (said.code, said.err) == (0, "")
        assert said.out.startswith("operation ") and "is completed: 3 of 3 done" in said.out
        assert index() == {"notes:1": 1, "notes:2": 1, "notes:3": 1}
        found = redrive("rebuild", "notes", "--json")
    assert found.code == 0
    told = found.document
    assert (told["status"], told["done"], told["actor"], told["action"]) == ("completed", 3, "ann", "rebuild")
    assert told["work"]["subject"] == "projection notes"
    listed = redrive("operations", "--json").document["items"]
    assert [one["reason"] for one in listed] == [None, "a ghost was seen"]


def test_a_rebuild_that_does_not_end_well_exits_with_1(redrive: Callable[..., Said]) -> None:
    plant(note(7, 1))
    execute("delete from notes")
    with worker():
        said = redrive("rebuild", "notes")
        assert said.code == 1 and "is stopped" in said.out and "--allow-empty" in said.out
        refused = redrive("rebuild", "notes", "--json")
        assert (refused.code, refused.document["status"]) == (1, "stopped")
        assert "notes:7" in index(), "nothing has changed"
        said = redrive("rebuild", "notes", "--allow-empty")
        assert said.code == 0 and "is completed" in said.out
    assert index() == {}


def test_who_detaches_does_not_wait(redrive: Callable[..., Said]) -> None:
    """No worker is there: what is begun waits for one, and a second one of its sort is refused."""
    for command in ("rebuild", "verify"):
        said = redrive(command, "notes", "--detach", "--json")
        begun = said.document["operation"]
        assert (said.code, begun["status"], begun["action"], said.document["approval"]) == (0, "running", command, None)
        again = redrive(command, "notes", "--detach")
        assert again.code == 1 and f"a {command} of notes is under way" in again.err and begun["id"] in again.err
        assert redrive("operations", "cancel", begun["id"]).code == 0
    with worker():  # which removes what the cancelled rebuild has left
        assert redrive("verify", "notes").code == 0
    said = redrive("verify", "notes", "--detach")
    assert said.code == 0 and "has begun: verify of projection notes" in said.out and "operations watch" in said.out


def test_verify_exits_with_1_where_something_differs_until_it_is_repaired(redrive: Callable[..., Said]) -> None:
    with worker():
        said = redrive("verify", "notes")
        assert (said.code, said.err) == (0, "") and "3 documents compared" in said.out
        plant(note(1, 1), note(2, 0), note(7, 1))
        said = redrive("verify", "notes")
        assert said.code == 1 and "4 documents compared: 1 missing, 1 stale, 1 extra" in said.out
        assert all(each in said.out for each in ("missing: notes:3", "stale: notes:2", "extra: notes:7"))
        assert "redrive outbox verify notes --repair" in said.out
        found = redrive("verify", "notes", "--json")
        result = found.document["work"]["result"]
        assert (found.code, result["missing_keys"], result["stale_keys"]) == (1, ["notes:3"], ["notes:2"])
        assert result["extra_keys"] == ["notes:7"] and "repaired" not in result
        assert index() == {"notes:1": 1, "notes:2": 0, "notes:7": 1}, "looking changes nothing"

        repaired = redrive("verify", "notes", "--repair", "--json")
        result = repaired.document["work"]["result"]
        assert (repaired.code, result["repaired"], result["left"]) == (0, 3, 0)
        assert index() == {"notes:1": 1, "notes:2": 1, "notes:3": 1}
        said = redrive("verify", "notes", "--repair")
        assert said.code == 0 and "missing" not in said.out


@pytest.mark.parametrize("command", ["rebuild", "verify"])
def test_what_cannot_be_done_exits_with_2(redrive: Callable[..., Said], command: str) -> None:
    said = redrive(command, "note")
    assert said.code == 2 and "no projection 'note'" in said.err and "did you mean notes?" in said.err
    said = redrive(command, "bare")
    assert said.code == 2 and "has no source to read from" in said.err
    assert redrive(command).code == 2
    said = redrive(command, "bare", "--json")
    assert said.code == 2 and json.loads(said.err)["error"]["message"]
    assert redrive("operations", "--json").document["items"] == []
