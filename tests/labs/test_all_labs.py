"""All labs, side by side, each on a fresh SQLite file, with short leases and backoffs: as anybody may run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.faults, pytest.mark.thorough, pytest.mark.timeout(600)]


def test_all_six_see_what_must_be_seen(tmp_path: Path) -> None:
    command = ["lab", "all", "--quick", "--jobs", "6", "--by", "ann", "--report", str(tmp_path / "records"), "--json"]
    foreign = ("REDRIVE", "TASK_", "OUTBOX_", "ELASTIC_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    done = subprocess.run(
        [sys.executable, "-m", "redrive.cli", *command], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    said = json.loads(done.stdout)
    assert (done.returncode, [one["conclusion"] for one in said["labs"] if not one["ok"]]) == (0, [])
    assert [one["lab"] for one in said["labs"]] == [1, 2, 3, 4, 5, 6]
    records = sorted((tmp_path / "records").iterdir())
    assert [path.name.partition("-")[0] for path in records] == [f"lab{number}" for number in range(1, 7)]
    for path in records:
        text = path.read_text()
        assert "verdict: **OK**" in text and "operator: ann" in text and "| parameter | value |" in text
