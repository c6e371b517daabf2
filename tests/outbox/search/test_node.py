"""Who has started a real OpenSearch finds it again, and ends it and nobody else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools.opensearch.node import MAIN, Node


def sleeper(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", *arguments])


def test_a_node_is_known_by_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")  # a narrow terminal does not hide it
    node = Node(tmp_path / "node")
    assert node.url is None and not node.stop()
    node.folder.mkdir()
    (node.folder / "url").write_text("http://127.0.0.1:9201")
    process = sleeper("x" * 500, MAIN, str(node.folder))
    try:
        (node.folder / "pid").write_text(str(process.pid))
        assert node.url == "http://127.0.0.1:9201"
        assert node.stop() and process.poll() is not None
        assert node.url is None and not node.folder.exists()
    finally:
        process.kill()
        process.wait()


def test_another_process_with_its_number_is_left_alone(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    node.folder.mkdir()
    (node.folder / "url").write_text("http://127.0.0.1:9201")
    process = sleeper()
    try:
        (node.folder / "pid").write_text(str(process.pid))
        assert node.url is None and not node.stop()
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
