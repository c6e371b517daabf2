"""The command, in this process (quick, for what it says) and as a real one (for how it lives and dies)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from redrive.cli.main import run
from tests.commands import Running

CRASH_APP = """
import os, sys, time
from redrive import App, Context
app = App()

@app.task("OK")
async def ok(ctx: Context) -> int:
    return 1

@app.task("CRASH", max_attempts=1)
async def crash(ctx: Context) -> None:
    os._exit(9)

@app.task("BLOCK")
async def block(ctx: Context) -> None:
    print("blocking", file=sys.stderr, flush=True)
    time.sleep(60)

@app.task("TRAIL")
async def trail(ctx: Context) -> None:
    import asyncio
    async with ctx.transaction():
        pass
    await asyncio.sleep(60)

@app.task("HANG")
async def hang(ctx: Context) -> None:
    import asyncio
    await asyncio.sleep(60)
"""


@dataclass(slots=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and no settings from the machine the tests run on."""
    for name in list(os.environ):
        if name.startswith(("REDRIVE_", "TASK_")) and not name.startswith("REDRIVE_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    # An application knows its store from its import on: the example must not remember another test's.
    monkeypatch.delitem(sys.modules, "redrive_kit.examples.shots", raising=False)
    # Modules that a test writes are imported from here, and forgotten afterwards.
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")) or name == "redrive_kit.examples.shots":
            del sys.modules[name]


CREATE = (["migrate"], ["enqueue"], ["work"], ["tokens", "create"], ["webhooks", "add"], ["batch", "create"])


def in_a_new_file(arguments: list[str]) -> list[str]:
    """The command with --create, where it may make the file that nobody names."""
    named = {"REDRIVE_URL", "REDRIVE_APP"} & {*os.environ} or {"--url", "--app", "--help"} & {*arguments}
    return [*arguments, "--create"] if any(arguments[: len(one)] == one for one in CREATE) and not named else arguments


@pytest.fixture
def redrive(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def call(*arguments: object) -> Said:
        capsys.readouterr()
        code = run(in_a_new_file([str(argument) for argument in arguments]))
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    return call


@dataclass(slots=True)
class Started:
    """A running command; what it logs is read as it comes."""

    process: Running

    def log(self, event: str) -> dict[str, Any]:
        """Wait for a log line with this event."""
        seen = []
        for line in self.process.stderr:
            seen.append(line)
            if line.startswith("{") and json.loads(line).get("event") == event:
                return json.loads(line)
            if line.strip() == event:
                return {}
        raise AssertionError(f"ended with {self.process.wait()} before {event}: {''.join(seen)}")

    def document(self) -> Any:
        """The JSON document on stdout, which ends with a closing brace on a line of its own."""
        text = ""
        for line in self.process.stdout:
            text += line
            if line == "}\n":
                return json.loads(text)
        raise AssertionError(f"no document: {text!r} {self.process.stderr.read()}")

    def ends(self) -> int:
        self.process.communicate(timeout=90)
        return self.process.wait()


@pytest.fixture
def start() -> Iterator[Callable[..., Started]]:
    """Start the command as a process; whatever still runs at the end of the test is killed."""
    running: list[Running] = []

    def begin(*arguments: object, **environment: str) -> Started:
        running.append(Running(*in_a_new_file([*map(str, arguments)]), env={**os.environ, **environment}))
        return Started(running[-1])

    yield begin
    for process in running:
        process.close()


@pytest.fixture
def crash_app(here: Path) -> str:
    (here / "crashing.py").write_text(CRASH_APP)
    return "crashing:app"
