"""What other tests have instead of all steps is what all steps lead to."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.stores.sqlite.migrate import SqliteMigrations
from tests.new_sqlite_files import at_once

pytestmark = pytest.mark.anyio
WITHOUT_TIMES = {"redrive_migration": "feature, version, name, needs, digest"}


def content(file: Path) -> tuple[list[Any], dict[str, list[Any]]]:
    with closing(sqlite3.connect(file)) as opened:
        made = opened.execute("select type, name, tbl_name, sql from sqlite_master order by type, name").fetchall()
        # The clock is set by who opens the file.
        tables = [name for kind, name, _, _ in made if kind == "table" and name != "redrive_clock"]
        rows = {one: sorted(opened.execute(f"select {WITHOUT_TIMES.get(one, '*')} from {one}")) for one in tables}
    return made, rows


async def migrate(file: Path) -> list[str]:
    app = App(f"sqlite:///{file}")
    done = await app.migrate()
    await app.close()
    return list(done)


async def test_a_file_made_at_once_is_that_of_all_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = await migrate(tmp_path / "steps.db")
    monkeypatch.setattr(SqliteMigrations, "up", at_once)
    assert await migrate(tmp_path / "once.db") == steps
    assert content(tmp_path / "once.db") == content(tmp_path / "steps.db")
    assert await migrate(tmp_path / "once.db") == []
