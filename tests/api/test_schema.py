"""Every route against its own OpenAPI document: no 5xx, nothing undeclared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import tries

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_every_route_keeps_to_its_description(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.api.every_route", str(tries(1, 2, 1_000)), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-8_000:]
