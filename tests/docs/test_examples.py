"""Every Python block of the documents runs, except those marked ``no-run``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(document: Path) -> list[str]:
    found = BLOCK.findall(document.read_text(encoding="utf-8"))
    return [code for flags, code in found if "no-run" not in flags]


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if blocks(d)], ids=lambda d: d.name)
def test_python_blocks_run(document: Path, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text("\n\n".join(blocks(document)), encoding="utf-8")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_relative_links_exist(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert missing == []


def test_every_setting_is_documented() -> None:
    from redrive.settings import Settings, _name

    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert [name for name in map(_name, Settings.model_fields) if f"`{name}`" not in text] == []
