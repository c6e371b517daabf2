"""The example of remote batches, as ``./dev up --example batches`` starts it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from redrive.testing.provider import simulated_provider
from tests.cluster import free_port

# Polled soon, so that it ends within the test.
SOON = dict.fromkeys(("BATCH_POLL_FIRST_SECONDS", "BATCH_POLL_NEXT_SECONDS", "BATCH_POLL_LATER_SECONDS"), "0.5")
ROOT = Path(__file__).parents[2]
COMMAND = ("up", "--app", "redrive_kit.examples.renders:app", "--demo", "--port", "0", "--json")


@pytest.mark.thorough
@pytest.mark.timeout(180)
def test_batches_run_are_paid_for_and_told_of(tmp_path: Path) -> None:
    env = {**os.environ, **SOON, **_ports(), "REDRIVE_URL": f"sqlite:///{tmp_path}/tour.db", "REDRIVE_LOG": "off"}
    arguments = [sys.executable, "-m", "redrive.cli", *COMMAND]
    with (
        simulated_provider("--duration", "0.5") as farm,  # what the example begins takes twelve seconds a job
        subprocess.Popen(
            arguments,
            cwd=tmp_path,
            env={**env, "FARM_PORT": farm.url.rpartition(":")[2]},
            stdout=subprocess.PIPE,
            text=True,
        ) as up,
    ):
        try:
            assert up.stdout is not None
            said = iter(up.stdout.readline, "}\n")
            home = json.loads("".join(said) + "}")["http"]
            trailer = _settled(f"{home}/api/batches", "Trailer")
            assert (trailer["state"], trailer["remote"]["frozen"]) == ("completed", 0)
            captured, released = (trailer["remote"][name] for name in ("captured", "released"))
            assert captured + released == 200 and captured > 100
            poor = _settled(f"{home}/api/batches", "More than it can pay")
            assert poor["remote"]["reason"] == "account newcomer has 20, and 10 items at 5 need 50"
            told = _until(lambda: _get(f"{home}/api/webhooks/deliveries?account=studio")["items"])
            assert told[0]["type"] == "batch.completed"
        finally:
            up.terminate()


def test_the_example_may_be_named_anywhere_and_has_a_store_of_its_own(tmp_path: Path) -> None:
    for name in ("requirements", "pyproject.toml", ".venv"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "dev", tmp_path / "dev.sh")  # it runs in the folder where it is
    env = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")} | _ports()
    command = ["sh", str(tmp_path / "dev.sh"), "up", "--port", "0"]
    with subprocess.Popen([*command, "--example", "batches"], env=env, stdout=subprocess.PIPE, text=True) as up:
        try:
            assert up.stdout is not None
            said = "".join(iter(up.stdout.readline, "\n")) + "".join(iter(up.stdout.readline, "\n"))
        finally:
            up.terminate()
    assert "sqlite:///batches.db" in said and "redrive_kit.examples.renders:app" in said
    assert "./dev redrive batch list --url sqlite:///batches.db" in said
    for wrong in (["--example"], ["--example", "shot"]):
        refused = subprocess.run([*command, *wrong], env=env, capture_output=True, text=True)
        assert refused.returncode == 2 and "there are the examples shots, batches and notes" in refused.stderr


def _ports() -> dict[str, str]:
    """Returns ports of its own for what the example starts: it uses what listens there already, and that may be what
    another test has started, and ends."""
    return {name: str(free_port()) for name in ("FARM_PORT", "RECEIVER_PORT")}


def _settled(url: str, name: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        [found] = [one for one in _get(url)["batches"] if one["name"] == name]
        return found if found["endedAt"] is not None else None

    found: dict[str, Any] = _until(look)
    return found


def _until(look: Any) -> Any:
    ends = time.monotonic() + 150
    while not (found := look()):
        assert time.monotonic() < ends, "it takes too long"
        time.sleep(0.5)
    return found


def _get(url: str) -> Any:
    with urlopen(url, timeout=60) as answer:
        return json.load(answer)
