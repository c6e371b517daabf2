"""The file of the full text: documents hold what payloads hold, so it is for its owner only."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from redrive.outbox.sinks.fts5 import Fts5

pytestmark = pytest.mark.anyio


async def test_others_on_the_machine_cannot_read_it(tmp_path: Path) -> None:
    path = tmp_path / "search.db"
    sink = Fts5(path)
    await sink.check()
    await sink.refresh()
    assert await sink.search("nothing", 10) == []
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
    await sink.close()
    assert modes["search.db"] == 0o600 and set(modes.values()) == {0o600}
